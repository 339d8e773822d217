/* Numbers of large tensors, block by block: NumPy's operations, in its order, on blocks that stay in the cache. */
#include "kernel.h"

/* What numerics/kernel.py expects: to be raised with every change of what is taken or given back. */
#define REVISION 5

int has_wide(void) {
#ifdef WIDE
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
#else
    return 0;
#endif
}

static int add_contents(PyObject *module) {
#ifdef WIDE
    __builtin_cpu_init();
#endif
    if (PyModule_AddIntConstant(module, "REVISION", REVISION) < 0) return -1;
    return PyModule_AddStringConstant(module, "INSTRUCTIONS", has_wide() ? "avx2" : "baseline");
}

static PyMethodDef methods[] = {
    {"curve", curve, METH_VARARGS,
     "curve(stream, table, cells, maps, maps_count, start, count, out)\n\n"
     "Writes count numbers of a curve, from the one at start on, as float64."},
    {"stretched", stretched, METH_VARARGS,
     "stretched(stream, table, cells, maps, maps_count, start, count, out, least, low, high, dtype)\n\n"
     "The same between low and high, in a dtype by its number; what is below least is low."},
    {"uniform", uniforms, METH_VARARGS,
     "uniform(stream, start, count, out)\n\n"
     "Writes count uniform numbers from the one at start on."},
    {"moved", moved, METH_VARARGS,
     "moved(stream, start, count, values, dtype, size, low, high, inward, out, dtype)\n\n"
     "Writes values times (1 + size xi), xi uniform with unit variance, within a range."},
    {"ends", ends, METH_VARARGS,
     "ends(values, dtype, count) -> (least, greatest, positive, negative) or None\n\n"
     "With whether zeros of either sign are there; None where a number is not finite."},
    {"below", below, METH_VARARGS,
     "below(stream, share, start, count, out)\n\n"
     "Writes, of count uniform numbers from the one at start on, which are below a share."},
    {"power_sums", power_sums, METH_VARARGS,
     "power_sums(stream, table, cells, maps, maps_count, start, count, out)\n\n"
     "Writes, for each block of 8,192 of these numbers, the sums of their first twelve powers."},
    {"describe", describe, METH_VARARGS,
     "describe(actual, dtype, expected, count, normal, top, unit)\n"
     "-> (largest, relative, ulps, sum, differing) or None\n\n"
     "The largest error, its largest share, the largest and the sum in ulps, and how many elements are not the\n"
     "reference rounded; None where something is not finite."},
    {"opened", opened, METH_VARARGS,
     "opened(actual, dtype, expected, count, normal, top, unit, largest, beyond, roundoff, least, limit, open)\n"
     "-> count\n\n"
     "Marks the elements whose error, less half an ulp, is above the limit; -1 where some are beyond the range."},
    {"piled", piled, METH_VARARGS,
     "piled(total, rows, width, places, terms, count, normal, top, unit, largest)\n\n"
     "Adds each row of terms to the row of the total at its place, every sum rounded."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_contents}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernel", "Numbers of large tensors, block by block.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&definition); }
