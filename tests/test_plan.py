"""Plans: what is checked at build, what stands in the bundle, and in which order the loop calls what."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc

import numpy as np
import pytato as pt
import pytest

from aotato.emit.plan import device_scalars, resolve
from aotato.frontend import AppError, Call, Every, Plan, Scalar, allreduce, array_input
from aotato.frontend.adapter.trace import trace
from aotato.runtime_stub import plan_data
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.plan import CheckFailed, NotReached, Runner

# The entries of an app; inputs are made anew by each, as apps do


def _scalar(name, dtype="float64"):
    return array_input(name, (), dtype)


def _q(rank=0):
    return array_input("q", (3 + rank,), "float64")


def init(rank):
    return {"q": pt.make_data_wrapper(np.ones(3 + rank)), "rs0": allreduce(pt.sum(_table(rank)), "sum")}


def _table(rank):
    return array_input("table", (2,), "float64", default=np.arange(2.0) + rank)


def step(rank):
    q = _q(rank)
    total = pt.sum(q)
    return {"q_new": q + _scalar("dt") * _scalar("a"), "rs": allreduce(total, "sum"), "local": total,
            "u_new": _scalar("u") + total, "v_new": allreduce(total, "max"),
            "n_new": _scalar("n", "int32")}


def observe(rank):
    return {"mass": allreduce(pt.sum(_q(rank)), "sum"), "q_copy": 2 * _q(rank)}


def timestep(rank):
    return {"dt_max": allreduce(pt.sum(_q(rank)) + _scalar("v"), "min")}


ENTRIES = (init, step, observe, timestep)


@pytest.fixture(scope="module")
def programs():
    return {entry.__name__: trace(entry.__name__, 2, entry).programs for entry in ENTRIES}


GOOD = Plan(
    init=(Call("init"),),
    step=(Call("step", {"a": 0.5, "dt": "0.5*dt", "n": 3}), Call("step", {"a": 1, "dt": "dt"})),
    carry={"q_new": "q", "u_new": "u", "v_new": "v"},
    scalars=(Scalar("t", 0, unit="s"), Scalar("dt", 0.1), Scalar("cfl", 0.5)),
    update={"t": "t + dt"},
    every=(Every("observe", 10, check={"mass >= 0": "less than nothing is left"}, show=("mass",)),
           Every("timestep", 5, before=True, update={"dt": "cfl*dt_max"})),
    until="rs <= 1e-20*rs0",
    at_most=500,
)


def test_a_plan_becomes_data_and_comes_back(programs):
    found = resolve(GOOD, programs)
    assert plan_data.of({"plan": json.loads(json.dumps(plan_data.to_json(found), sort_keys=True))}) == found
    rows = {("init", "q", "q"), ("step", "q_new", "q"), ("step", "u_new", "u"), ("step", "v_new", "v")}
    assert set(found.carry) == {plan_data.Carry(*row) for row in rows}
    assert found.reduced_of("step") == ("rs", "v_new") and found.reduced_of("init") == ("rs0",)
    assert found.fed() == {"q", "a", "dt", "n"} and found.free == ()
    assert found.step[0].set[2] == plan_data.Setting("n", "int32", 3)
    assert plan_data.of({"plan": None}) is None


def test_scalars_that_only_the_device_knows_stay_there(programs):
    assert device_scalars(resolve(GOOD, programs), programs) == {"u"}
    assert device_scalars(None, programs) == frozenset()


def test_a_plan_of_another_form_is_refused():
    with pytest.raises(Refusal, match="plan is damaged"):
        plan_data.of({"plan": {"step": 3}})


WRONG = [
    ("must return a Plan, not a dict", {}),
    ("step of the plan holds 'step'; expected Call", {"step": ("step",)}),
    ("the plan has no step", {"step": ()}),
    ("entry 'stepp', which does not exist; did you mean 'step'", {"init": (Call("stepp"),)}),
    ("interval of entry 'observe' must be a positive .* not 0", {"every": (Every("observe", 0),)}),
    ("interval of entry 'observe' must be a positive .* not 1.5", {"every": (Every("observe", 1.5),)}),
    ("gives entry 'observe' two intervals", {"every": (Every("observe", 1), Every("observe", 2))}),
    ("entry 'output' cannot have an interval", {"every": (Every("output", 1),)}),
    ("one of until and at_most", {"until": None}),
    ("one of until and at_most", {"at_most": None}),
    ("at_most of the plan must be a positive", {"at_most": 0}),
    ("scalar of the plan cannot be called 'step'", {"scalars": (Scalar("step", 0),)}),
    ("scalar of the plan cannot be called 'a b'", {"scalars": (Scalar("a b", 0),)}),
    ("two scalars 't'", {"scalars": (Scalar("t", 0), Scalar("t", 1))}),
    ("default of scalar 't' must be a number", {"scalars": (Scalar("t", "x"),)}),
    ("output 'rs' of entry 'step' is a reduced value, but 'rs' is a scalar",
     {"scalars": (*GOOD.scalars, Scalar("rs", 0))}),
    ("input 'v' of entry 'timestep' has the name of a scalar, but no call sets it",
     {"scalars": (*GOOD.scalars, Scalar("v", 0)), "carry": {"q_new": "q"}}),
    ("a check after entry 'observe', 'mas > 0', reads 'mas', which does not exist; did you mean 'mass'",
     {"every": (Every("observe", 2, check={"mas > 0": "empty"}), GOOD.every[1])}),
    ("shows, of entry 'observe', reduced value 'mas', which does not exist; did you mean 'mass'",
     {"every": (Every("observe", 2, show=("mas",)), GOOD.every[1])}),
    ("a check after entry 'observe' is 'mass > 0': 3; expected a host expression",
     {"every": (Every("observe", 2, check={"mass > 0": 3}), GOOD.every[1])}),
    ("updates scalar 'dtt', which does not exist; did you mean 'dt'", {"update": {"dtt": "1"}}),
    ("update of 't' is 3; expected", {"update": {"t": 3}}),
    ("for entry 'step', input 'aa', which does not exist; did you mean 'a'", {"step": (Call("step", {"aa": 1}),)}),
    (r"sets input 'q', which is float64\[3\]: only 0-dim", {"step": (Call("step", {"q": 1}),)}),
    ("'n', which is int32, to 1.5", {"step": (Call("step", {"n": 1.5}),)}),
    ("'n', which is int32, to 3000000000", {"step": (Call("step", {"n": 3000000000}),)}),
    ("'a', which is float64, to None", {"step": (Call("step", {"a": None}),)}),
    ("carries output 'q_nw', which does not exist; did you mean 'q_new'", {"carry": {"q_nw": "q"}}),
    ("carries 'q_new' to input 'p', which does not exist", {"carry": {"q_new": "p"}}),
    (r"output 'q_new' of entry 'step' feeds input 'table', but on rank 0 the output is float64\[3\] and the input is "
     r"float64\[2\]", {"carry": {"q_new": "table"}}),
    (r"output 'n_new' .* on rank 0 the output is int32\[\] and the input is float64\[\]", {"carry": {"n_new": "v"}}),
    ("outputs 'u_new' and 'v_new' of entry 'step' both feed input 'u'", {"carry": {"u_new": "u", "v_new": "u"}}),
    ("input 'n' is set for entry 'step' and fed by output 'n_new' of entry 'step'", {"carry": {"n_new": "n"}}),
    ("until: expression 'rs <' cannot be read", {"until": "rs <"}),
    ("update of 't': expression .* holds .open", {"update": {"t": "open('x')"}}),
    ("setting of 'a' for entry 'step', 'dtt', reads 'dtt', which does not exist; did you mean 'dt'",
     {"step": (Call("step", {"a": "dtt", "dt": 1, "n": 1}),)}),
    ("until, 'local > 0', reads 'local', but this output of entry 'step' is no 0-dimensional", {"until": "local > 0"}),
    ("until, 'u > 0', reads 'u', which is an input", {"until": "u > 0"}),
    ("setting of 'a' .*needs 'rs' before entry 'step' has computed it",
     {"step": (Call("step", {"a": "rs", "dt": 1, "n": 1}),)}),
    ("update of 't', 'mass', needs 'mass' before entry 'observe'", {"update": {"t": "mass"}}),
    ("entry 'timestep' reads 'v' before the plan first sets it",
     {"carry": {"q_new": "q"}, "step": (*GOOD.step, Call("timestep", {"v": 1}))}),
]


@pytest.mark.parametrize("sentence, change", WRONG)
def test_a_wrong_plan_is_one_sentence(programs, sentence, change):
    plan = dataclasses.replace(GOOD, **change) if change else {}
    with pytest.raises(AppError, match=sentence) as caught:
        resolve(plan, programs)
    assert "\n" not in str(caught.value)


def test_an_input_is_one_array_for_all_entries(programs):
    other = trace("other", 2, lambda rank: {"x": array_input("q", (3,), "float64")}).programs
    with pytest.raises(AppError, match=r"input 'q' on rank 1 is float64\[4\] in entry 'step', but float64\[3\] in .*"):
        resolve(dataclasses.replace(GOOD, every=(Every("other", 1),)), {**programs, "other": other})


def test_a_carry_must_be_made_wherever_it_is_read():
    def half(rank):
        x = array_input("x", (2,), "float64")
        return {"x_new": x + 1} if rank == 0 else {"y": x}

    found = {"half": trace("half", 2, half).programs}
    with pytest.raises(AppError, match="on rank 1 the output does not exist and the input is"):
        resolve(Plan(step=(Call("half"),), carry={"x_new": "x"}), found)


# The loop


class Fake:
    """Integrates q' = a: records what it is told."""

    def __init__(self):
        self.initialised = False
        self.put: dict[str, float] = {}
        self.told: list[str] = []
        self.found = {"init": {"rs0": 1.0}, "step": {"rs": 1.0, "v_new": 0.0}, "observe": {"mass": 0.0},
                      "timestep": {"dt_max": 4.0}}

    def perform(self, entry):
        self.told.append(entry)
        if entry == "step":
            self.found["step"]["rs"] *= 0.5
        self.found["observe"]["mass"] += 1

    def put_scalar(self, path, value):
        self.put[path] = value
        self.told.append(f"{path}={value!r}")

    def reduced(self, entry):
        return self.found[entry]

    def not_finite(self):
        return "'q' holds 3 values that are not finite"


@pytest.fixture
def plan(programs):
    return resolve(GOOD, programs)


def runner(plan, **change):
    return Runner(Fake(), dataclasses.replace(plan, **change))


STEP = ["a=0.5", "dt=1.0", "n=3", "step", "a=1.0", "dt=2.0", "step"]


def test_the_order_of_a_step(plan):
    loop = runner(plan, every=(*plan.every[:1], dataclasses.replace(plan.every[1], interval=2)))
    loop.run(steps=3, every={"observe": 3})
    assert loop.program.told == ["init", "timestep", *STEP, *STEP, "timestep", *STEP, "observe"]


def test_n_steps_are_n_further_steps_and_init_runs_once(plan):
    loop = runner(plan)
    assert loop.run(steps=2) == {"step": 2, "t": 4.0, "dt": 2.0, "cfl": 0.5}
    assert loop.run(steps=3) == {"step": 5, "t": 10.0, "dt": 2.0, "cfl": 0.5}
    assert loop.program.told.count("init") == 1 and loop.program.told.count("timestep") == 1
    loop.run(steps=1)
    assert loop.program.told.count("timestep") == 2
    assert loop.run(steps=0)["step"] == 6


def test_until_ends_the_loop_before_a_step_and_at_most_fails_it(plan):
    loop = runner(plan, until="rs <= 0.1*rs0")
    assert loop.run()["step"] == 2
    assert loop.run()["step"] == 2
    loop = runner(plan, at_most=4)
    with pytest.raises(NotReached, match=r"done 4 steps, the most it may do, and 'rs <= .*' does not hold") as caught:
        loop.run()
    assert caught.value.agreed and loop.step == 4


def test_an_end_that_observes_waits_for_its_first_value(plan):
    assert runner(plan, until="mass > 0").run(every={"observe": 7})["step"] == 7


def test_until_a_time(plan):
    assert runner(plan).run(until_time=5.0) == {"step": 3, "t": 6.0, "dt": 2.0, "cfl": 0.5}
    assert runner(plan).run(steps=2, until_time=5.0)["step"] == 2
    loop = runner(plan)
    loop.program.found["timestep"]["dt_max"] = 0.0
    with pytest.raises(Refusal, match=r"t is 0.0 before step 1 and 0.0 after it"):
        loop.run(until_time=5.0)


def test_set_scalars_and_free_inputs(plan):
    loop = runner(plan, every=(), free=(plan_data.FreeInput("kappa", "float32"), plan_data.FreeInput("m", "int8")))
    assert loop.run(steps=1, set={"dt": 3, "kappa": 2.5, "m": 4.0})["t"] == 3.0
    assert loop.program.put["kappa"] == 2.5 and loop.program.put["m"] == 4
    for name, found in (("dtt", "no number of this bundle's loop; did you mean 'dt'"),
                        ("a", "that the plan sets itself"), ("u", "that output 'u_new' of entry 'step' feeds")):
        with pytest.raises(Refusal, match=found):
            loop.run(steps=1, set={name: 1})
    with pytest.raises(Refusal, match=r"input 'm' is int8, but was set to 4.5"):
        loop.run(steps=1, set={"m": 4.5})


def test_whole_inputs_refuse_fractions(plan):
    half = plan_data.Setting("n", "int32", "step/2")
    loop = runner(plan, every=(), step=(plan_data.Call("step", (half,)),))
    with pytest.raises(Refusal, match=r"input 'n' is int32, but was set to 0.5"):
        loop.run(steps=2)


def test_a_state_that_was_set_replaces_init(plan):
    loop = runner(plan)
    loop.program.initialised = True
    with pytest.raises(Refusal, match="the loop needs 'rs0', which an init call computes"):
        loop.run(steps=1)
    assert loop.run(steps=1, set={"rs0": 1.0})["step"] == 1
    assert "init" not in loop.program.told


@pytest.mark.parametrize("sentence, arguments", [
    ("no end of its own", {}),
    ("expected a number of steps, but found -1", {"steps": -1}),
    ("advances a scalar 't' in every step", {"until_time": 1.0}),
    ("found obsrve=3; did you mean 'observe'", {"steps": 1, "every": {"obsrve": 3}}),
    ("positive interval, but found observe=0", {"steps": 1, "every": {"observe": 0}}),
])
def test_a_run_that_cannot_be_is_refused_before_it_starts(plan, sentence, arguments):
    loop = runner(plan, until="", at_most=0, update=())
    with pytest.raises(Refusal, match=sentence) as caught:
        loop.run(**arguments)
    assert caught.value.agreed and not loop.program.told


def test_an_expression_without_a_value_ends_the_run(plan):
    loop = runner(plan, update=(plan_data.Update("t", "t/(step - 1)"),))
    with pytest.raises(Refusal, match=r"'t/\(step - 1\)' has no value: .*division"):
        loop.run(steps=5)


def test_a_check_that_does_not_hold_ends_the_run_once_its_row_is_known(programs):
    checked = dataclasses.replace(GOOD.every[0], interval=2, check={"mass < 10": "the mass is too much"})
    loop, rows = runner(resolve(dataclasses.replace(GOOD, every=(checked, GOOD.every[1])), programs)), []
    with pytest.raises(CheckFailed) as caught:
        loop.run(steps=9, on_observe=lambda entry, step, reduced: rows.append(step))
    assert str(caught.value) == ("after 4 steps (t = 8) the mass is too much: mass is 12, where 'mass < 10' should "
                                 "hold; 'q' holds 3 values that are not finite")
    assert caught.value.agreed and rows == [2, 4] and loop.step == 4


def test_callbacks(plan):
    loop, seen, steps = runner(plan), [], []
    loop.run(steps=5, every={"observe": 2}, on_observe=lambda e, n, r: seen.append((e, n, r["mass"])),
             on_step=steps.append)
    assert seen == [("observe", 2, 7.0), ("observe", 4, 12.0)] and steps == [1, 2, 3, 4, 5]


def test_a_loop_grows_by_nothing(plan):
    loop = runner(plan, until="rs < 0", at_most=10**6)
    loop.program.perform = loop.program.put_scalar = lambda *_: None
    loop = Runner(loop.program, loop.plan)
    loop.run(steps=50)
    tracemalloc.start()
    loop.run(steps=10)
    before = tracemalloc.get_traced_memory()[0]
    loop.run(steps=1000)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1000 and peak - before < 20000
