"""Nodal discontinuous Galerkin on triangles, quadrilaterals, tetrahedra and hexahedra: the rooms that solvers share.

    element = elements.element("tet", order=3)        Element: nodes, faces, matrices of the reference cell
    mesh    = mesh.box((16, 16, 16), cell="tet")      Mesh: vertices, cells, named boundary faces, periodic pairs
            = gmsh.read("wing.msh")
    parts   = domain.domains(mesh, element, ranks)    Domain for each rank: tables in numpy; once, in an app's `setup`
    ops     = operators.Operators(parts[rank])        the rank's operators on pytato arrays; in each entry

Shapes: E elements of the rank, n nodes of an element, F faces, m nodes of a face, K = F m face nodes of an element.
Nodal arrays are (..., E, n), face arrays (..., E, K), where `...` are axes of variables.
"""
