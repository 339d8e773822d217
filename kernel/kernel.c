/* Statistics of numbers that lie one behind the other in memory, in one pass, and which of them stand many times.
 *
 * It knows Python's limited API, so that one build serves every CPython from 3.10 on, and no framework. Sums are
 * float64. Where something is not finite the squares are not either, and only this is told of such numbers.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "-ffast-math would make subnormal numbers zero in the whole process that loads this"
#endif

/* What recording/kernel.py expects: to be raised with every change of what is taken or given back. */
#define REVISION 1

/* Elements from which on other threads may run meanwhile; fewer take less time than another thread might keep. */
#define LONG 1048576

#define INLINE static inline __attribute__((always_inline))

/* The same code once more for CPUs with wider instructions; which one runs is found out when it is loaded. */
#if defined(__x86_64__) && !defined(BASELINE)
#define WIDE "avx2"
#endif

/* As recording/kernel.py numbers them. */
enum dtype { BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64 };

typedef struct {
    union {
        double real;
        int64_t whole;
        uint64_t natural;
    } high, low;
    double sum, squares;
} statistics;

typedef struct {
    unsigned int zeros, repeats;
} masses;

INLINE float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE float from_bfloat16(uint16_t half) { return from_bits((uint32_t)half << 16); }

/* Without a subnormal float32 on the way, which a process may have asked its CPU to take for zero: those of float16
 * are read as 2**-14 and so much, and 2**-14 is taken away. */
INLINE float from_float16(uint16_t half) {
    const uint32_t least = 113u << 23;
    uint32_t size = (half & 0x7fffu) << 13, sign = (half & 0x8000u) << 16;
    uint32_t small = to_bits(from_bits(size + least) - from_bits(least));
    uint32_t bits = size + (size >= (31u << 23) ? 224u << 23 : 112u << 23);
    return from_bits((size < (1u << 23) ? small : bits) | sign);
}

INLINE uint8_t from_bool(uint8_t byte) { return byte != 0; }

#define AS_IT_IS(value) (value)

/* A function that takes count elements, 1 at least, of TYPE, which READ makes numbers of; FIELD holds the extremes. The
 * address may be any: memcpy is how C reads what is not aligned, and no call. */
#define STATISTICS(NAME, TYPE, READ, NUMBER, FIELD)                                                                    \
    INLINE void NAME(statistics *found, const char *address, Py_ssize_t count) {                                       \
        TYPE first;                                                                                                    \
        memcpy(&first, address, sizeof first);                                                                         \
        NUMBER high = READ(first), low = high;                                                                         \
        double sum = 0, squares = 0;                                                                                   \
        _Pragma("omp simd reduction(+ : sum, squares) reduction(max : high) reduction(min : low)")                     \
        for (Py_ssize_t index = 0; index < count; index++) {                                                           \
            TYPE element;                                                                                              \
            memcpy(&element, address + index * (Py_ssize_t)sizeof element, sizeof element);                            \
            NUMBER number = READ(element);                                                                             \
            double wide = (double)number;                                                                              \
            high = number > high ? number : high;                                                                      \
            low = number < low ? number : low;                                                                         \
            sum += wide;                                                                                               \
            squares += wide * wide;                                                                                    \
        }                                                                                                              \
        found->high.FIELD = high;                                                                                      \
        found->low.FIELD = low;                                                                                        \
        found->sum = sum;                                                                                              \
        found->squares = squares;                                                                                      \
    }

/* How many of count numbers are 0, and how many equal the one before them: of so many as an unsigned int counts. */
#define MASSES(NAME, TYPE, READ, NUMBER)                                                                               \
    INLINE void NAME(masses *found, const char *address, Py_ssize_t count) {                                           \
        TYPE first;                                                                                                    \
        memcpy(&first, address, sizeof first);                                                                         \
        unsigned int zeros = READ(first) == 0, repeats = 0;                                                            \
        _Pragma("omp simd reduction(+ : zeros, repeats)")                                                              \
        for (Py_ssize_t index = 1; index < count; index++) {                                                           \
            TYPE element, before;                                                                                      \
            memcpy(&element, address + index * (Py_ssize_t)sizeof element, sizeof element);                            \
            memcpy(&before, address + (index - 1) * (Py_ssize_t)sizeof before, sizeof before);                         \
            NUMBER number = READ(element);                                                                             \
            zeros += number == 0;                                                                                      \
            repeats += number == READ(before);                                                                         \
        }                                                                                                              \
        found->zeros = zeros;                                                                                          \
        found->repeats = repeats;                                                                                      \
    }

STATISTICS(of_bool, uint8_t, from_bool, uint8_t, natural)
STATISTICS(of_uint8, uint8_t, AS_IT_IS, uint8_t, natural)
STATISTICS(of_uint16, uint16_t, AS_IT_IS, uint16_t, natural)
STATISTICS(of_uint32, uint32_t, AS_IT_IS, uint32_t, natural)
STATISTICS(of_uint64, uint64_t, AS_IT_IS, uint64_t, natural)
STATISTICS(of_int8, int8_t, AS_IT_IS, int8_t, whole)
STATISTICS(of_int16, int16_t, AS_IT_IS, int16_t, whole)
STATISTICS(of_int32, int32_t, AS_IT_IS, int32_t, whole)
STATISTICS(of_int64, int64_t, AS_IT_IS, int64_t, whole)
STATISTICS(of_float16, uint16_t, from_float16, float, real)
STATISTICS(of_bfloat16, uint16_t, from_bfloat16, float, real)
STATISTICS(of_float32, float, AS_IT_IS, float, real)
STATISTICS(of_float64, double, AS_IT_IS, double, real)

MASSES(in_float16, uint16_t, from_float16, float)
MASSES(in_bfloat16, uint16_t, from_bfloat16, float)
MASSES(in_float32, float, AS_IT_IS, float)
MASSES(in_float64, double, AS_IT_IS, double)

INLINE void of_any(statistics *found, const char *address, Py_ssize_t count, enum dtype dtype) {
    switch (dtype) {
    case BOOL: of_bool(found, address, count); break;
    case UINT8: of_uint8(found, address, count); break;
    case INT8: of_int8(found, address, count); break;
    case UINT16: of_uint16(found, address, count); break;
    case INT16: of_int16(found, address, count); break;
    case UINT32: of_uint32(found, address, count); break;
    case INT32: of_int32(found, address, count); break;
    case UINT64: of_uint64(found, address, count); break;
    case INT64: of_int64(found, address, count); break;
    case FLOAT16: of_float16(found, address, count); break;
    case BFLOAT16: of_bfloat16(found, address, count); break;
    case FLOAT32: of_float32(found, address, count); break;
    case FLOAT64: of_float64(found, address, count); break;
    }
}

INLINE void in_any(masses *found, const char *address, Py_ssize_t count, enum dtype dtype) {
    switch (dtype) {
    case FLOAT16: in_float16(found, address, count); break;
    case BFLOAT16: in_bfloat16(found, address, count); break;
    case FLOAT32: in_float32(found, address, count); break;
    default: in_float64(found, address, count); break;
    }
}

/* What runs on one kind of CPU. */
typedef struct {
    const char *instructions;
    void (*measure)(statistics *, const char *, Py_ssize_t, enum dtype);
    void (*repeats)(masses *, const char *, Py_ssize_t, enum dtype);
} way;

#define WAY(NAME, INSTRUCTIONS, TARGET)                                                                                \
    TARGET static void NAME##_measure(statistics *found, const char *address, Py_ssize_t count, enum dtype dtype) {    \
        of_any(found, address, count, dtype);                                                                          \
    }                                                                                                                  \
    TARGET static void NAME##_repeats(masses *found, const char *address, Py_ssize_t count, enum dtype dtype) {        \
        in_any(found, address, count, dtype);                                                                          \
    }                                                                                                                  \
    static const way NAME = {INSTRUCTIONS, NAME##_measure, NAME##_repeats};

WAY(baseline, "baseline", )
#ifdef WIDE
WAY(wide, WIDE, __attribute__((target(WIDE))))
#endif

static const way *chosen = &baseline;

static void choose(void) {
#ifdef WIDE
    __builtin_cpu_init();
    if (__builtin_cpu_supports(WIDE)) chosen = &wide;
#endif
}

static PyObject *tuple_of(const statistics *found, enum dtype dtype) {
    if (dtype >= FLOAT16)
        return Py_BuildValue("(dddd)", found->high.real, found->low.real, found->sum, found->squares);
    if (dtype >= INT8)
        return Py_BuildValue("(LLdd)", (long long)found->high.whole, (long long)found->low.whole, found->sum,
                             found->squares);
    return Py_BuildValue("(KKdd)", (unsigned long long)found->high.natural, (unsigned long long)found->low.natural,
                         found->sum, found->squares);
}

/* Elements in memory, as Python gives them. */
typedef struct {
    const char *address;
    Py_ssize_t count;
    enum dtype dtype;
} elements;

static int taken(elements *found, PyObject *const *given, Py_ssize_t count_given, enum dtype first) {
    if (count_given != 3) {
        PyErr_SetString(PyExc_TypeError, "give an address, a count and a dtype's number");
        return 0;
    }
    found->address = PyLong_AsVoidPtr(given[0]);
    found->count = PyLong_AsSsize_t(given[1]);
    long dtype = PyLong_AsLong(given[2]);
    if (PyErr_Occurred()) return 0;
    if (!found->address || found->count < 1 || dtype < (long)first || dtype > FLOAT64) {
        PyErr_SetString(PyExc_ValueError, "give an address, a count from 1 on and a dtype's number");
        return 0;
    }
    found->dtype = (enum dtype)dtype;
    return 1;
}

static PyObject *measure(PyObject *module, PyObject *const *given, Py_ssize_t count_given) {
    (void)module;
    elements all;
    statistics found;
    if (!taken(&all, given, count_given, BOOL)) return NULL;
    if (all.count < LONG) {
        chosen->measure(&found, all.address, all.count, all.dtype);
    } else {
        Py_BEGIN_ALLOW_THREADS
        chosen->measure(&found, all.address, all.count, all.dtype);
        Py_END_ALLOW_THREADS
    }
    return tuple_of(&found, all.dtype);
}

static PyObject *repeats(PyObject *module, PyObject *const *given, Py_ssize_t count_given) {
    (void)module;
    elements all;
    masses found;
    if (!taken(&all, given, count_given, FLOAT16)) return NULL;
    if (all.count > UINT_MAX) {
        PyErr_SetString(PyExc_OverflowError, "more elements than an unsigned int counts");
        return NULL;
    }
    chosen->repeats(&found, all.address, all.count, all.dtype);
    return Py_BuildValue("(II)", found.zeros, found.repeats);
}

static int add_contents(PyObject *module) {
    choose();
    if (PyModule_AddIntConstant(module, "REVISION", REVISION) < 0) return -1;
    return PyModule_AddStringConstant(module, "INSTRUCTIONS", chosen->instructions);
}

static PyMethodDef methods[] = {
    {"measure", (PyCFunction)(void (*)(void))measure, METH_FASTCALL,
     "measure(address, count, dtype) -> (maximum, minimum, sum, sum of squares)\n\n"
     "Of count elements at an address, of a dtype by its number. Integers have integers as extremes."},
    {"repeats", (PyCFunction)(void (*)(void))repeats, METH_FASTCALL,
     "repeats(address, count, dtype) -> (zeros, elements equal to the one before)\n\n"
     "Of few elements of a floating dtype."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_contents}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernel", "Statistics of memory, in one pass.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&definition); }
