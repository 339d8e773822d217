/* Errors of an output's elements, in one pass: what numerics/metrics.py and numerics/allowed_scale.py do with NumPy, with
 * the same bits. Where something is not finite, or beyond the range of a dtype, only that is told. */
#include "reading.h"
#include <float.h>
#include <math.h>

/* Elements that are read at a time: what is computed of them stays in the first cache. */
#define PART 512

typedef struct {
    const char *actual;
    enum dtype dtype;
    const double *expected;
    Py_ssize_t count;
    /* Of the format in whose ulps errors are counted: the smallest normal number and the largest power of two, and an
     * ulp of 1. */
    double normal, top, unit;
} sides;

/* As NumPy adds up so many numbers. */
static double pairwise(const double *values, Py_ssize_t count) {
    double sums[8] = {0}, found;
    if (count > PAIRWISE) {
        Py_ssize_t half = count / 2 - count / 2 % 8;
        return pairwise(values, half) + pairwise(values + half, count - half);
    }
    Py_ssize_t even = count - count % 8;
    for (Py_ssize_t index = 0; index < even; index += 8)
        for (int lane = 0; lane < 8; lane++) sums[lane] += values[index + lane];
    found = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (Py_ssize_t index = even; index < count; index++) found += values[index];
    return found;
}

typedef struct {
    double absolute, relative, ulps, sum, differing;
} description;

INLINE int all_described(description *found, const sides *both) {
    double actual[PART], apart[BLOCK], absolute = 0, relative = 0, ulps = 0;
    uint64_t differing = 0, lost = 0;
    memset(found, 0, sizeof *found);
    for (Py_ssize_t block = 0; block < both->count; block += BLOCK) {
        const Py_ssize_t stop = both->count - block < BLOCK ? both->count - block : BLOCK;
        for (Py_ssize_t first = 0; first < stop; first += PART) {
            const Py_ssize_t count = stop - first < PART ? stop - first : PART;
            const double *expected = both->expected + block + first;
            double *distances = apart + first;
            widened(actual, both->actual, both->dtype, block + first, count);
            _Pragma("omp simd reduction(max : absolute, relative, ulps) reduction(+ : differing, lost)")
            for (Py_ssize_t index = 0; index < count; index++) {
                double wanted = expected[index], gap = fabs(actual[index] - wanted), size = fabs(wanted);
                double spacing = spacing_of(wanted, both->normal, both->top, both->unit), distance = gap / spacing;
                double rounded = rint(wanted / spacing) * spacing, share = gap / (size == 0.0 ? INFINITY : size);
                differing += (uint64_t)(actual[index] != rounded);
                lost += (uint64_t)!(gap <= DBL_MAX);
                absolute = gap > absolute ? gap : absolute;
                relative = share > relative ? share : relative;
                ulps = distance > ulps ? distance : ulps;
                distances[index] = distance;
            }
            if (lost) return 0;
        }
        found->sum += pairwise(apart, stop);
    }
    found->absolute = absolute;
    found->relative = relative;
    found->ulps = ulps;
    found->differing = (double)differing;
    return 1;
}

/* What elements are granted. */
typedef struct {
    double largest, beyond, roundoff, least, limit;
    char *open;
} allowance;

/* How many elements may be above the limit; -1: some are beyond the range of the format. */
INLINE Py_ssize_t all_opened(const allowance *granted, const sides *both) {
    double actual[PART];
    uint64_t found = 0, outside = 0;
    const double roundoff = granted->roundoff, least = granted->least, limit = granted->limit;
    for (Py_ssize_t first = 0; first < both->count; first += PART) {
        const Py_ssize_t count = both->count - first < PART ? both->count - first : PART;
        const double *expected = both->expected + first;
        char *open = granted->open + first;
        widened(actual, both->actual, both->dtype, first, count);
        _Pragma("omp simd reduction(+ : found, outside)")
        for (Py_ssize_t index = 0; index < count; index++) {
            double wanted = expected[index], size = fabs(wanted);
            double error = fabs(actual[index] - wanted) - spacing_of(wanted, both->normal, both->top, both->unit) / 2, allowed = roundoff * size;
            error = error > 0.0 ? error : 0.0;
            allowed = allowed > least ? allowed : least;
            double ratio = error / allowed;
            uint64_t above = (uint64_t)!(ratio <= limit) | ((uint64_t)(size == 0.0) & (uint64_t)(ratio > 0.0));
            outside += (uint64_t)!(size <= granted->largest) | (uint64_t)!(fabs(actual[index]) <= granted->beyond);
            found += above;
            open[index] = (char)above;
        }
        if (outside) return -1;
    }
    return (Py_ssize_t)found;
}

typedef struct {
    double low, high;
    int positive, negative;
} ends_of;

/* The least and the greatest of numbers, and whether zeros of either sign are there; 0 where one is not finite. */
INLINE int all_ends(ends_of *found, const char *from, enum dtype dtype, Py_ssize_t all) {
    double values[PART], low = INFINITY, high = -INFINITY;
    uint64_t lost = 0, positive = 0, negative = 0;
    for (Py_ssize_t first = 0; first < all; first += PART) {
        const Py_ssize_t count = all - first < PART ? all - first : PART;
        widened(values, from, dtype, first, count);
        _Pragma("omp simd reduction(min : low) reduction(max : high) reduction(+ : lost, positive, negative)")
        for (Py_ssize_t index = 0; index < count; index++) {
            double value = values[index];
            uint64_t bits;
            memcpy(&bits, &value, sizeof bits);
            lost += (uint64_t)!(fabs(value) <= DBL_MAX);
            positive += (uint64_t)(bits == 0);
            negative += (uint64_t)(bits == 0x8000000000000000u);
            low = value < low ? value : low;
            high = value > high ? value : high;
        }
    }
    found->low = low;
    found->high = high;
    found->positive = positive > 0;
    found->negative = negative > 0;
    return !lost;
}

typedef struct {
    int (*ends)(ends_of *, const char *, enum dtype, Py_ssize_t);
    int (*described)(description *, const sides *);
    Py_ssize_t (*opened)(const allowance *, const sides *);
} way;

#define WAY(NAME, ATTRIBUTES)                                                                                          \
    ATTRIBUTES static int NAME##_ends(ends_of *found, const char *from, enum dtype dtype, Py_ssize_t all) {            \
        return all_ends(found, from, dtype, all);                                                                      \
    }                                                                                                                  \
    ATTRIBUTES static int NAME##_described(description *found, const sides *both) {                                    \
        return all_described(found, both);                                                                             \
    }                                                                                                                  \
    ATTRIBUTES static Py_ssize_t NAME##_opened(const allowance *granted, const sides *both) {                          \
        return all_opened(granted, both);                                                                              \
    }                                                                                                                  \
    static const way NAME = {NAME##_ends, NAME##_described, NAME##_opened};

WAY(baseline, )
#ifdef WIDE
WAY(wide, __attribute__((target(WIDE))))
#endif

static const way *chosen(void) {
#ifdef WIDE
    if (has_wide()) return &wide;
#endif
    return &baseline;
}

#define SIDES "KiKnddd"

static int taken(sides *both, unsigned long long actual, int dtype, unsigned long long expected) {
    if (!actual || !expected || both->count < 1 || dtype < 0 || dtype > FLOAT64) {
        PyErr_SetString(PyExc_ValueError, "give addresses, a count from 1 on and a dtype's number");
        return 0;
    }
    both->actual = (const char *)(uintptr_t)actual;
    both->dtype = (enum dtype)dtype;
    both->expected = (const double *)(uintptr_t)expected;
    return 1;
}

PyObject *ends(PyObject *module, PyObject *given) {
    (void)module;
    ends_of found;
    unsigned long long values;
    int dtype, is_known;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(given, "Kin", &values, &dtype, &count)) return NULL;
    if (!values || count < 1 || dtype < 0 || dtype > FLOAT64) {
        PyErr_SetString(PyExc_ValueError, "give an address, a dtype's number and a count from 1 on");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    is_known = chosen()->ends(&found, (const char *)(uintptr_t)values, (enum dtype)dtype, count);
    Py_END_ALLOW_THREADS
    if (!is_known) Py_RETURN_NONE;
    return Py_BuildValue("(ddii)", found.low, found.high, found.positive, found.negative);
}

PyObject *describe(PyObject *module, PyObject *given) {
    (void)module;
    sides both;
    description found;
    unsigned long long actual, expected;
    int dtype, is_finite;
    if (!PyArg_ParseTuple(given, SIDES, &actual, &dtype, &expected, &both.count, &both.normal, &both.top, &both.unit) ||
        !taken(&both, actual, dtype, expected))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    is_finite = both.normal * both.unit > 0 && chosen()->described(&found, &both);
    Py_END_ALLOW_THREADS
    if (!is_finite) Py_RETURN_NONE;
    return Py_BuildValue("(ddddd)", found.absolute, found.relative, found.ulps, found.sum, found.differing);
}

PyObject *opened(PyObject *module, PyObject *given) {
    (void)module;
    sides both;
    allowance granted;
    unsigned long long actual, expected, open;
    int dtype;
    Py_ssize_t found = -1;
    if (!PyArg_ParseTuple(given, SIDES "dddddK", &actual, &dtype, &expected, &both.count, &both.normal, &both.top,
                          &both.unit, &granted.largest, &granted.beyond, &granted.roundoff, &granted.least,
                          &granted.limit, &open) ||
        !taken(&both, actual, dtype, expected))
        return NULL;
    granted.open = (char *)(uintptr_t)open;
    Py_BEGIN_ALLOW_THREADS
    if (both.normal * both.unit > 0) found = chosen()->opened(&granted, &both);
    Py_END_ALLOW_THREADS
    return PyLong_FromSsize_t(found);
}
