/* Statistics of numbers that lie one behind the other in memory, in one pass, and which of them stand many times; and
 * what tells one stack of Python's frames from another.
 *
 * It knows Python's limited API, so that one build serves every CPython from 3.10 on, and no framework. Sums are
 * float64. Where something is not finite the squares are not either, and only this is told of such numbers.
 */
#include "kernel.h"
#include <limits.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "-ffast-math would make subnormal numbers zero in the whole process that loads this"
#endif

/* What capture/kernel.py expects: to be raised with every change of what is taken or given back. */
#define REVISION 5

/* Elements from which on other threads may run meanwhile; fewer take less time than another thread might keep. */
#define LONG 1048576

/* Words for which there is room at first: two of each frame of a stack. */
#define WORDS 128

#define INLINE static inline __attribute__((always_inline))

/* The same code again for CPUs with wider instructions; which one runs is found out when it is loaded. */
#if defined(__x86_64__) && !defined(BASELINE)
#define WIDE "avx2"
#define FUSED "avx2,fma"
#ifndef NARROW
#define WIDEST "avx512f,avx512bw,avx512dq,avx512vl"
#endif
#endif

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

/* Of bytes, of which any but 0 is true. */
INLINE void of_bool(statistics *found, const char *address, Py_ssize_t count) {
    uint64_t trues = 0;
    _Pragma("omp simd reduction(+ : trues)")
    for (Py_ssize_t index = 0; index < count; index++) trues += address[index] != 0;
    found->high.natural = trues > 0;
    found->low.natural = trues == (uint64_t)count;
    found->sum = found->squares = (double)trues;
}

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

#define MEASURE(NAME, ATTRIBUTES)                                                                                      \
    ATTRIBUTES static void NAME(statistics *found, const char *address, Py_ssize_t count, enum dtype dtype) {          \
        of_any(found, address, count, dtype);                                                                          \
    }
#define REPEATS(NAME, ATTRIBUTES)                                                                                      \
    ATTRIBUTES static void NAME(masses *found, const char *address, Py_ssize_t count, enum dtype dtype) {              \
        in_any(found, address, count, dtype);                                                                          \
    }

MEASURE(baseline_measure, )
REPEATS(baseline_repeats, )
static const way baseline = {"baseline", baseline_measure, baseline_repeats};

#ifdef WIDE
/* Not to be taken into what is compiled for more instructions. */
MEASURE(wide_measure, __attribute__((target(WIDE), noinline)))
REPEATS(wide_repeats, __attribute__((target(WIDE))))

/* The square of a float of 32 bits is exact in float64, so that adding it in one instruction changes nothing but the
 * time. Of float64 it would take longer: each such addition waits for the one before. */
__attribute__((target(FUSED))) static void fused_measure(statistics *found, const char *address, Py_ssize_t count,
                                                         enum dtype dtype) {
    if (dtype == FLOAT64)
        wide_measure(found, address, count, dtype);
    else
        of_any(found, address, count, dtype);
}
static const way wide = {WIDE, fused_measure, wide_repeats};
#endif

#ifdef WIDEST
/* Integers and bool alone, int64 four to six times as fast. Of floats the sums would have other last digits, and
 * extremes that are zeros another sign. */
__attribute__((target(WIDEST))) static void widest_measure(statistics *found, const char *address, Py_ssize_t count,
                                                           enum dtype dtype) {
    if (dtype >= FLOAT16)
        fused_measure(found, address, count, dtype);
    else
        of_any(found, address, count, dtype);
}
static const way widest = {"avx512", widest_measure, wide_repeats};
#endif

static const way *chosen = &baseline;

static void choose(void) {
#ifdef WIDE
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) chosen = &wide;
#endif
#ifdef WIDEST
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && chosen == &wide)
        chosen = &widest;
#endif
}

PyObject *extreme(const statistics *found, enum dtype dtype, int high) {
    if (dtype >= FLOAT16) return PyFloat_FromDouble(high ? found->high.real : found->low.real);
    if (dtype >= INT8) return PyLong_FromLongLong(high ? found->high.whole : found->low.whole);
    return PyLong_FromUnsignedLongLong(high ? found->high.natural : found->low.natural);
}

/* Takes the values over, of which NULL stands for an error that is set. */
static PyObject *tuple_of(PyObject **values, Py_ssize_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t index = 0; index < count; index++) {
        if (tuple && values[index] && PyTuple_SetItem(tuple, index, values[index]) == 0) continue;
        if (!tuple || !values[index]) Py_XDECREF(values[index]);
        Py_CLEAR(tuple);
    }
    return tuple;
}

static const Py_ssize_t widths[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8};

static int taken(elements *found, PyObject *address, PyObject *count, PyObject *number, enum dtype first) {
    found->address = PyLong_AsVoidPtr(address);
    found->count = PyLong_AsSsize_t(count);
    long dtype = PyLong_AsLong(number);
    if (PyErr_Occurred()) return 0;
    if (!found->address || found->count < 1 || dtype < (long)first || dtype > FLOAT64) {
        PyErr_SetString(PyExc_ValueError, "give an address, a count from 1 on and a dtype's number");
        return 0;
    }
    found->dtype = (enum dtype)dtype;
    return 1;
}

static int are_three(Py_ssize_t count_given) {
    if (count_given != 3) PyErr_SetString(PyExc_TypeError, "give an address, a count and a dtype's number");
    return count_given == 3;
}

void measure_all(statistics *found, const elements *all) {
    if (all->count < LONG) {
        chosen->measure(found, all->address, all->count, all->dtype);
    } else {
        Py_BEGIN_ALLOW_THREADS
        chosen->measure(found, all->address, all->count, all->dtype);
        Py_END_ALLOW_THREADS
    }
}

/* Of so many elements as an unsigned int counts. */
void count_masses(masses *found, const elements *all) {
    chosen->repeats(found, all->address, all->count, all->dtype);
}

/* An integer, as a number of Python's. */
static PyObject *integer(const char *address, enum dtype dtype) {
    statistics one;
    of_any(&one, address, 1, dtype);
    return extreme(&one, dtype, 1);
}

/* The elements, integers, as a list. */
PyObject *integers(const elements *all) {
    PyObject *list = PyList_New(all->count);
    for (Py_ssize_t index = 0; list && index < all->count; index++) {
        PyObject *number = integer(all->address + index * widths[all->dtype], all->dtype);
        if (!number || PyList_SetItem(list, index, number) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *measure(PyObject *module, PyObject *const *given, Py_ssize_t count_given) {
    (void)module;
    elements all;
    statistics found;
    if (!are_three(count_given) || !taken(&all, given[0], given[1], given[2], BOOL)) return NULL;
    measure_all(&found, &all);
    PyObject *values[] = {extreme(&found, all.dtype, 1), extreme(&found, all.dtype, 0), PyFloat_FromDouble(found.sum),
                          PyFloat_FromDouble(found.squares)};
    return tuple_of(values, 4);
}

static PyObject *summary(PyObject *module, PyObject *const *given, Py_ssize_t count_given) {
    (void)module;
    elements all;
    statistics found;
    masses often;
    if (!are_three(count_given) || !taken(&all, given[0], given[1], given[2], FLOAT16)) return NULL;
    if (all.count > UINT_MAX) {
        PyErr_SetString(PyExc_OverflowError, "more elements than an unsigned int counts");
        return NULL;
    }
    measure_all(&found, &all);
    count_masses(&often, &all);
    PyObject *values[] = {PyFloat_FromDouble(found.high.real), PyFloat_FromDouble(found.low.real),
                          PyFloat_FromDouble(found.sum),       PyFloat_FromDouble(found.squares),
                          PyLong_FromUnsignedLong(often.zeros), PyLong_FromUnsignedLong(often.repeats)};
    return tuple_of(values, 6);
}

/* Three whole numbers of a tuple. */
static int three(Py_ssize_t *found, PyObject *tuple) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 3) {
        PyErr_SetString(PyExc_ValueError, "give tuples of three extents and of three strides");
        return 0;
    }
    for (Py_ssize_t index = 0; index < 3; index++) found[index] = PyLong_AsSsize_t(PyTuple_GetItem(tuple, index));
    return !PyErr_Occurred();
}

/* Copies a sample's elements; their width is known where this is compiled. */
INLINE void gather(char *end, const char *address, const Py_ssize_t *extent, const Py_ssize_t *stride, size_t width) {
    for (Py_ssize_t row = 0; row < extent[0]; row++)
        for (Py_ssize_t piece = 0; piece < extent[1]; piece++)
            for (Py_ssize_t place = 0; place < extent[2]; place++, end += width)
                memcpy(end, address + (row * stride[0] + piece * stride[1] + place * stride[2]) * (Py_ssize_t)width,
                       width);
}

/* The masses of a sample of count elements, by its extents and strides; all gives their address and dtype. */
int count_sample(masses *found, const elements *all, PyObject *extents, PyObject *strides, Py_ssize_t *count) {
    Py_ssize_t extent[3], stride[3], width = widths[all->dtype];
    char gathered[SAMPLED * 8];
    if (!three(extent, extents) || !three(stride, strides)) return -1;
    *count = 1;
    for (int place = 0; place < 3; place++)
        *count = extent[place] < 1 || extent[place] > SAMPLED || stride[place] < 0 ? 0 : *count * extent[place];
    if (*count < 1 || *count > SAMPLED) {
        PyErr_SetString(PyExc_ValueError, "give three extents, of 1,024 elements at most, and three strides");
        return -1;
    }
    switch (width) {
    case 2: gather(gathered, all->address, extent, stride, 2); break;
    case 4: gather(gathered, all->address, extent, stride, 4); break;
    default: gather(gathered, all->address, extent, stride, 8); break;
    }
    chosen->repeats(found, gathered, *count, all->dtype);
    return 0;
}

static PyObject *sample(PyObject *module, PyObject *const *given, Py_ssize_t count_given) {
    (void)module;
    elements all;
    masses often;
    Py_ssize_t count;
    if (count_given != 4) {
        PyErr_SetString(PyExc_TypeError, "give an address, three extents, three strides and a dtype's number");
        return NULL;
    }
    PyObject *one = PyLong_FromLong(1);
    int fine = one && taken(&all, given[0], one, given[3], FLOAT16);
    Py_XDECREF(one);
    if (!fine || count_sample(&often, &all, given[1], given[2], &count) < 0) return NULL;
    return Py_BuildValue("(II)", often.zeros, often.repeats);
}

int name_frames(frame_names *names) {
    names->instruction = PyUnicode_InternFromString("f_lasti");
    names->back = PyUnicode_InternFromString("f_back");
    return names->instruction && names->back ? 0 : -1;
}

void forget_frames(frame_names *names) {
    Py_CLEAR(names->instruction);
    Py_CLEAR(names->back);
}

/* The address of a frame's code object and the instruction where it stands, as two words. The frame that called it, or
 * None; NULL where something failed. */
static PyObject *followed(uintptr_t *words, PyObject *frame, const frame_names *names) {
    PyObject *instruction = PyObject_GetAttr(frame, names->instruction);
    if (!instruction) return NULL;
    PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    words[0] = (uintptr_t)code;
    words[1] = (uintptr_t)PyLong_AsSsize_t(instruction);
    Py_DECREF(code);
    Py_DECREF(instruction);
    return PyErr_Occurred() ? NULL : PyObject_GetAttr(frame, names->back);
}

PyObject *stack_key(const frame_names *names, PyObject *frame) {
    uintptr_t here[WORDS], *words = here, *more;
    size_t count = 0, room = WORDS;
    PyObject *key = NULL;
    here[0] = 0;
    Py_INCREF(frame);
    while (frame && frame != Py_None) {
        if (count == room) {
            room *= 2;
            more = PyMem_Realloc(words == here ? NULL : words, room * sizeof *words);
            if (!more) {
                Py_CLEAR(frame);
                PyErr_NoMemory();
                break;
            }
            if (words == here) memcpy(more, here, sizeof here);
            words = more;
        }
        PyObject *back = followed(words + count, frame, names);
        count += 2;
        Py_DECREF(frame);
        frame = back;
    }
    if (frame) key = PyBytes_FromStringAndSize((const char *)words, (Py_ssize_t)(count * sizeof *words));
    Py_XDECREF(frame);
    if (words != here) PyMem_Free(words);
    return key;
}

static PyObject *stack(PyObject *module, PyObject *frame) {
    PyObject *mine = (PyObject *)PyEval_GetFrame();
    if (!mine || Py_TYPE(frame) != Py_TYPE(mine)) {
        PyErr_SetString(PyExc_TypeError, "give a frame");
        return NULL;
    }
    return stack_key(PyModule_GetState(module), frame);
}

/* For the other files. */

int truth(PyObject *found) {
    int value = found ? PyObject_IsTrue(found) : -1;
    Py_XDECREF(found);
    return value;
}

Py_ssize_t whole(PyObject *found) {
    Py_ssize_t value = found ? PyLong_AsSsize_t(found) : -1;
    Py_XDECREF(found);
    return value;
}

int put(PyObject *owner, PyObject *name, PyObject *value) {
    int done = value ? PyObject_SetAttr(owner, name, value) : -1;
    Py_XDECREF(value);
    return done;
}

PyObject *ask(PyObject *method, PyObject *object) { return PyObject_CallFunctionObjArgs(method, object, NULL); }

int take_needs(PyObject **fields, PyObject *given, const char *const *needs, const char *const *names) {
    for (; *needs; needs++)
        if (!(*fields++ = PyObject_GetAttrString(given, *needs))) return -1;
    for (; *names; names++)
        if (!(*fields++ = PyUnicode_InternFromString(*names))) return -1;
    return 0;
}

int visit_all(PyObject **fields, int count, visitproc visit, void *argument) {
    for (; count--; fields++) {
        int found = *fields ? visit(*fields, argument) : 0;
        if (found) return found;
    }
    return 0;
}

void clear_all(PyObject **fields, int count) {
    for (; count--; fields++) Py_CLEAR(*fields);
}

static void forget(void *module) { forget_frames(PyModule_GetState(module)); }

/* Takes the type over. */
static int add_type(PyObject *module, const char *name, PyObject *type) {
    int done = type ? PyModule_AddObjectRef(module, name, type) : -1;
    Py_XDECREF(type);
    return done;
}

static int add_contents(PyObject *module) {
    if (name_frames(PyModule_GetState(module)) < 0) return -1;
    choose();
    if (add_type(module, "Values", values_type(module)) < 0 || add_type(module, "Calls", calls_type(module)) < 0)
        return -1;
    if (PyModule_AddIntConstant(module, "REVISION", REVISION) < 0) return -1;
    return PyModule_AddStringConstant(module, "INSTRUCTIONS", chosen->instructions);
}

static PyMethodDef methods[] = {
    {"measure", (PyCFunction)(void (*)(void))measure, METH_FASTCALL,
     "measure(address, count, dtype) -> (maximum, minimum, sum, sum of squares)\n\n"
     "Of count elements at an address, of a dtype by its number. Integers have integers as extremes."},
    {"summary", (PyCFunction)(void (*)(void))summary, METH_FASTCALL,
     "summary(address, count, dtype) -> (maximum, minimum, sum, sum of squares, zeros, repeats)\n\n"
     "As measure, of elements of a floating dtype; repeats are those that equal the one before."},
    {"sample", (PyCFunction)(void (*)(void))sample, METH_FASTCALL,
     "sample(address, extents, strides, dtype) -> (zeros, repeats)\n\n"
     "As summary, of at most 1,024 elements. Three extents and, in elements, three strides, the innermost last."},
    {"stack", stack, METH_O,
     "stack(frame) -> bytes\n\n"
     "Of a frame and of each of its callers the address of the code object, and the instruction where it stands."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_contents}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernel", "Statistics of memory, in one pass; stacks; calls.", sizeof(frame_names),
    methods, slots, NULL, NULL, forget,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&definition); }
