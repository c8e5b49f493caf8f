"""Compressible flow: gas, fluxes, boundaries, time stepping, cases; pointwise functions of numpy or pytato arrays."""
