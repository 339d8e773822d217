/* Sums that 16-bit kernels take term by term, each one rounded. */
#include "reading.h"
#include <math.h>

typedef struct {
    Py_ssize_t rows, width, count;
    double normal, top, unit, largest;
} pile;

/* By way of float32, as torch casts float64. */
INLINE double rounded(double value, const pile *of) {
    double single = (double)(float)value;
    double spacing = spacing_of(single, of->normal, of->top, of->unit), found = rint(single / spacing) * spacing;
    return fabs(found) > of->largest ? copysign(INFINITY, found) : found;
}

static int all_piled(double *total, const int64_t *places, const double *terms, const pile *of) {
    for (Py_ssize_t term = 0; term < of->count; term++, terms += of->width) {
        if (places[term] < 0 || places[term] >= of->rows) return 0;
        double *row = total + places[term] * of->width;
        for (Py_ssize_t index = 0; index < of->width; index++)
            row[index] = rounded(row[index] + terms[index], of);
    }
    return 1;
}

PyObject *piled(PyObject *module, PyObject *given) {
    (void)module;
    pile of;
    unsigned long long total, places, terms;
    int is_inside;
    if (!PyArg_ParseTuple(given, "KnnKKndddd", &total, &of.rows, &of.width, &places, &terms, &of.count, &of.normal,
                          &of.top, &of.unit, &of.largest))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    is_inside = all_piled((double *)(uintptr_t)total, (const int64_t *)(uintptr_t)places,
                          (const double *)(uintptr_t)terms, &of);
    Py_END_ALLOW_THREADS
    if (is_inside) Py_RETURN_NONE;
    PyErr_SetString(PyExc_IndexError, "a place is outside the sums");
    return NULL;
}
