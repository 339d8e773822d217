/* Snapshots of the arguments and results of torch's calls, as capture/torch/values.py takes them.
 *
 * These are the common ones: plain tensors on the CPU whose elements lie one behind the other, numbers, text, lists and
 * tuples. All others are left to Python, and where anything raises Python decides what becomes of it. torch is asked by
 * the functions that Python hands over.
 */
#include "kernel.h"
#include <limits.h>
#include <math.h>

/* What the constructor's argument has. known, memories, shapes, small, samples and twins are those of Values, and
 * tensor, new, count and leaves are its ways, in Python. dtypes has the names, compiled the kernel's numbers and widths
 * the bytes of torch's dtypes. */
#define GIVEN(X)                                                                                                       \
    X(Seen) X(Known) X(Memory) X(PlainEntry) X(UNSET) X(Tensor) X(Parameter) X(strided)                                \
    X(known) X(memories) X(shapes) X(small) X(samples) X(twins) X(leaves) X(dtypes) X(compiled) X(widths)              \
    X(tensor) X(new) X(count) X(other) X(together) X(layout_of) X(places) X(copy_sample)                                           \
    X(data_ptr) X(untyped_storage) X(is_contiguous) X(is_neg) X(is_inference) X(stride)                                \
    X(begin) X(nbytes) X(resizable) X(is_shared)

/* Names of attributes, and the word for a plain tensor. */
#define ASKED(X)                                                                                                       \
    X(layout) X(shape) X(dtype) X(requires_grad) X(is_cpu) X(_version) X(append) X(strides)                            \
    X(max) X(min) X(mean) X(norm) X(true) X(zeros) X(values) X(address) X(memory) X(version) X(seen)                   \
    X(storage) X(counted) X(int) X(bool) X(str) X(float)

/* Of a tensor that has not to be counted together with others, as statistics.py and frequent_values.py have them. */
typedef struct {
    Py_ssize_t small, kept, few, looked, shared;
} limits;

typedef struct {
    PyObject_HEAD
    union {
        struct {
            GIVEN(FIELD) ASKED(NAMED) PyObject *n_kind, *n_stride;
        };
        PyObject *all[GIVEN(ONE) ASKED(ONE) + 2];
    };
    limits limits;
    int quick, counts, remembers, scalars;
} values;

/* Up to so many tensors are counted one by one. */
enum { ALL = GIVEN(ONE) ASKED(ONE) + 2, SINGLE = 3 };

/* A tensor, and what it has said of itself. */
typedef struct {
    PyObject *tensor, *place, *storage, *shape, *dtype, *grad, *name; /* tensor and name are borrowed */
    const char *address;
    int ordered, negative;
    Py_ssize_t version;
} looked;

static int look(values *self, looked *it) {
    PyObject *layout = PyObject_GetAttr(it->tensor, self->n_layout);
    Py_XDECREF(layout);
    if (layout != self->strided) return 0;
    if (!(it->place = ask(self->data_ptr, it->tensor))) return 0;
    it->address = PyLong_AsVoidPtr(it->place);
    if (!(it->storage = ask(self->untyped_storage, it->tensor))) return 0;
    if (!(it->shape = PyObject_GetAttr(it->tensor, self->n_shape))) return 0;
    if (!(it->dtype = PyObject_GetAttr(it->tensor, self->n_dtype))) return 0;
    if (!(it->grad = PyObject_GetAttr(it->tensor, self->n_requires_grad))) return 0;
    if (!(it->name = PyDict_GetItemWithError(self->dtypes, it->dtype))) return 0;
    if ((it->ordered = truth(ask(self->is_contiguous, it->tensor))) < 0) return 0;
    if ((it->negative = truth(ask(self->is_neg, it->tensor))) < 0) return 0;
    return !PyErr_Occurred();
}

static void look_away(looked *it) {
    Py_XDECREF(it->place);
    Py_XDECREF(it->storage);
    Py_XDECREF(it->shape);
    Py_XDECREF(it->dtype);
    Py_XDECREF(it->grad);
}

/* list.append(value), of a deque as well; takes the value over. */
static int append(values *self, PyObject *list, PyObject *value) {
    PyObject *done = value ? PyObject_CallMethodObjArgs(list, self->n_append, value, NULL) : NULL;
    Py_XDECREF(value);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Does the weak reference of a memory lead to this storage? lives: does it lead to any? */
static int leads(values *self, PyObject *memory, PyObject *storage, int *lives) {
    PyObject *reference = PyObject_GetAttr(memory, self->n_storage);
    PyObject *found = reference ? PyWeakref_GetObject(reference) : NULL;
    int same = found ? found == storage : -1;
    *lives = found && found != Py_None;
    Py_XDECREF(reference);
    return same;
}

/* _Memory.goes_on: do versions still tell of every write? */
static int goes_on(values *self, looked *it, PyObject *memory) {
    Py_ssize_t last = whole(PyObject_GetAttr(memory, self->n_version));
    if (last == -1 && PyErr_Occurred()) return -1;
    /* One that is lower than the last is of another counter. */
    if (it->version < last && PyObject_SetAttr(memory, self->n_counted, Py_False) < 0) return -1;
    if (put(memory, self->n_version, PyLong_FromSsize_t(it->version)) < 0) return -1;
    return truth(PyObject_GetAttr(memory, self->n_counted));
}

/* Values._memory, of the storage that begins there. */
static PyObject *memory_of(values *self, looked *it, PyObject *begin) {
    PyObject *memory = PyDict_GetItemWithError(self->memories, begin), *made = NULL;
    int lives = 0, same = memory ? leads(self, memory, it->storage, &lives) : PyErr_Occurred() ? -1 : 0;
    if (same < 0) return NULL;
    if (same) {
        Py_INCREF(memory);
        if (goes_on(self, it, memory) < 0) Py_CLEAR(memory);
        return memory;
    }
    if (memory && PyObject_SetAttr(memory, self->n_counted, Py_False) < 0) return NULL;
    int owned = truth(ask(self->resizable, it->storage));
    int shared = owned > 0 ? truth(ask(self->is_shared, it->storage)) : owned;
    PyObject *reference = shared < 0 ? NULL : PyWeakref_NewRef(it->storage, NULL);
    PyObject *version = reference ? PyLong_FromSsize_t(it->version) : NULL;
    if (version)
        made = PyObject_CallFunctionObjArgs(self->Memory, reference, version,
                                            owned && !shared && !lives ? Py_True : Py_False, NULL);
    Py_XDECREF(reference);
    Py_XDECREF(version);
    if (made && PyDict_SetItem(self->memories, begin, made) < 0) Py_CLEAR(made);
    return made;
}

/* Keep what is known of an address. */
static int remember(values *self, looked *it, PyObject *seen, PyObject *begin, PyObject *count) {
    int done = -1, inference = truth(ask(self->is_inference, it->tensor));
    if (inference) return inference < 0 ? -1 : 0;
    it->version = whole(PyObject_GetAttr(it->tensor, self->n__version));
    if (it->version == -1 && PyErr_Occurred()) return -1;
    PyObject *memory = memory_of(self, it, begin);
    int counted = memory ? truth(PyObject_GetAttr(memory, self->n_counted)) : -1;
    if (counted > 0) {
        PyObject *version = PyLong_FromSsize_t(it->version);
        PyObject *known = NULL;
        if (version) known = PyObject_CallFunctionObjArgs(self->Known, memory, version, seen, count, NULL);
        if (known) done = PyDict_SetItem(self->known, it->place, known);
        Py_XDECREF(version);
        Py_XDECREF(known);
    }
    Py_XDECREF(memory);
    return counted > 0 ? done : counted;
}

/* Copy the elements for later. */
static int put_off(values *self, looked *it, PyObject *seen, const elements *all, Py_ssize_t bytes) {
    return append(self, self->small, Py_BuildValue("(y#OO)", all->address, bytes, it->dtype, seen));
}

static int put_sums(values *self, PyObject *seen, const statistics *found, const elements *all) {
    if (all->dtype == BOOL)
        return put(seen, self->n_max, PyBool_FromLong(found->high.natural != 0)) < 0 ||
                       put(seen, self->n_min, PyBool_FromLong(found->low.natural != 0)) < 0 ||
                       put(seen, self->n_true, PyLong_FromDouble(found->sum)) < 0
                   ? -1
                   : 0;
    return put(seen, self->n_max, extreme(found, all->dtype, 1)) < 0 ||
                   put(seen, self->n_min, extreme(found, all->dtype, 0)) < 0 ||
                   put(seen, self->n_mean, PyFloat_FromDouble(found->sum / (double)all->count)) < 0 ||
                   put(seen, self->n_norm, PyFloat_FromDouble(sqrt(found->squares))) < 0
               ? -1
               : 0;
}

static int put_zeros(values *self, PyObject *seen, const masses *often, Py_ssize_t count) {
    return put(seen, self->n_zeros,
               often->zeros ? PyFloat_FromDouble(often->zeros / (double)count) : PyLong_FromLong(0));
}

static int may_be_frequent(values *self, const masses *often, Py_ssize_t count) {
    return often->repeats > self->limits.few && often->repeats * self->limits.looked >= count;
}

/* statistics.fill_small_from */
static int fill_small(values *self, looked *it, PyObject *seen, const elements *all, Py_ssize_t bytes) {
    statistics found;
    masses often;
    measure_all(&found, all);
    if (all->dtype < FLOAT16) {
        int few = all->dtype != BOOL && 1 < all->count && all->count <= self->limits.kept && it->ordered;
        /* Beyond, sums may be rounded. */
        if (few && found.squares >= 9007199254740992.0) return put_off(self, it, seen, all, bytes);
        if (put_sums(self, seen, &found, all) < 0) return -1;
        return few ? put(seen, self->n_values, integers(all)) : 0;
    }
    count_masses(&often, all);
    /* Where there is one value only, the extremes say so. */
    int one = found.high.real == found.low.real;
    if (!isfinite(found.squares) || (!one && may_be_frequent(self, &often, all->count)))
        return put_off(self, it, seen, all, bytes);
    return put_sums(self, seen, &found, all) < 0 ? -1 : put_zeros(self, seen, &often, all->count);
}

/* Values._look */
static int look_at_sample(values *self, looked *it, PyObject *seen, const elements *all, PyObject *count) {
    masses often;
    Py_ssize_t size = 0;
    int done = -1;
    PyObject *where = PyObject_CallFunctionObjArgs(self->places, it->shape, count,
                                                   it->ordered ? Py_True : Py_False, NULL);
    PyObject *extents = where ? PyObject_GetAttr(where, self->n_shape) : NULL;
    PyObject *strides = extents ? PyObject_GetAttr(where, self->n_strides) : NULL;
    if (strides && count_sample(&often, all, extents, strides, &size) == 0)
        done = put_zeros(self, seen, &often, size);
    if (done == 0 && may_be_frequent(self, &often, size)) {
        PyObject *width = PyDict_GetItemWithError(self->widths, it->dtype);
        PyObject *sample = NULL;
        if (width) sample = PyObject_CallFunctionObjArgs(self->copy_sample, it->place, width, where, NULL);
        done = sample ? append(self, self->samples, Py_BuildValue("(OOOO)", sample, it->dtype, where, seen)) : -1;
        Py_XDECREF(sample);
    }
    Py_XDECREF(where);
    Py_XDECREF(extents);
    Py_XDECREF(strides);
    return done;
}

static int fill_in_python(values *self, looked *it, PyObject *seen, PyObject *count, Py_ssize_t bytes) {
    PyObject *size = PyLong_FromSsize_t(bytes), *done = NULL;
    if (size)
        done = PyObject_CallFunctionObjArgs(self->count, it->tensor, seen, count, size,
                                            it->negative ? Py_True : Py_False, NULL);
    Py_XDECREF(size);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Values._count, of so many elements, which lie one behind the other. */
static int fill(values *self, looked *it, PyObject *seen, PyObject *count, Py_ssize_t width) {
    PyObject *number = PyDict_GetItemWithError(self->compiled, it->dtype);
    if (!number && PyErr_Occurred()) return -1;
    elements all = {it->address, PyLong_AsSsize_t(count), number ? (enum dtype)PyLong_AsLong(number) : BOOL};
    int near = truth(PyObject_GetAttr(it->tensor, self->n_is_cpu));
    if (near < 0) return -1;
    if (!number || !near || it->negative || all.count >= self->limits.shared)
        return fill_in_python(self, it, seen, count, all.count * width);
    if (all.count * width <= self->limits.small) return fill_small(self, it, seen, &all, all.count * width);
    statistics found;
    measure_all(&found, &all);
    if (!isfinite(found.squares)) return fill_in_python(self, it, seen, count, all.count * width);
    if (put_sums(self, seen, &found, &all) < 0) return -1;
    return all.dtype < FLOAT16 ? 0 : look_at_sample(self, it, seen, &all, count);
}

static PyObject *fresh(values *self, looked *it, PyObject *shape) {
    PyObject *seen = PyObject_CallFunctionObjArgs(self->Seen, self->n_kind, it->name, shape, it->grad, NULL);
    if (seen && PyObject_SetAttr(seen, self->n_address, it->place) < 0) Py_CLEAR(seen);
    return seen;
}

/* The one that all alike have; borrowed. */
static PyObject *shared_shape(values *self, PyObject *shape) {
    PyObject *first = PyDict_GetItemWithError(self->shapes, shape);
    if (first || PyErr_Occurred()) return first;
    return PyDict_SetItem(self->shapes, shape, shape) < 0 ? NULL : shape;
}

static Py_ssize_t product(PyObject *shape) {
    Py_ssize_t size = 1;
    for (Py_ssize_t index = 0; index < PyTuple_Size(shape); index++) {
        Py_ssize_t extent = PyLong_AsSsize_t(PyTuple_GetItem(shape, index));
        if (extent < 0) return -1;
        if (__builtin_mul_overflow(size, extent, &size)) return -1;
    }
    return size;
}

/* Are all elements inside the storage, which begins there? Programs free memory and keep the tensor. */
static int has_memory(values *self, looked *it, PyObject *begin, Py_ssize_t bytes) {
    const char *start = begin ? PyLong_AsVoidPtr(begin) : NULL;
    Py_ssize_t size = begin ? whole(ask(self->nbytes, it->storage)) : -1;
    return PyErr_Occurred() ? -1 : it->address + bytes <= start + size;
}

/* Are these the same elements as those of an earlier snapshot, unchanged since? */
static int is_twin(values *self, looked *it, PyObject *known, PyObject *before, PyObject *count) {
    PyObject *layout = PyObject_GetAttr(known, self->n_layout), *dtype = PyObject_GetAttr(before, self->n_dtype);
    int same = layout && dtype ? PyObject_RichCompareBool(layout, count, Py_EQ) : -1;
    if (same > 0) same = dtype == it->name;
    Py_XDECREF(layout);
    Py_XDECREF(dtype);
    return same;
}

/* The statistics of a new snapshot, and what is kept of it. */
static int complete(values *self, looked *it, PyObject *seen, PyObject *known, PyObject *before, Py_ssize_t size,
                    Py_ssize_t width) {
    PyObject *count = PyLong_FromSsize_t(size), *begin = ask(self->begin, it->storage);
    int inside = count ? has_memory(self, it, begin, size * width) : -1, done = inside < 0 ? -1 : 0;
    if (inside > 0) {
        int twin = known ? is_twin(self, it, known, before, count) : 0;
        if (twin > 0)
            done = append(self, self->twins, Py_BuildValue("(OO)", seen, before));
        else
            done = twin < 0 ? twin : fill(self, it, seen, count, width);
        if (!twin && done == 0 && self->remembers && !it->negative) done = remember(self, it, seen, begin, count);
    }
    Py_XDECREF(count);
    Py_XDECREF(begin);
    return done;
}

/* Values._new; known and before are NULL, or an earlier snapshot of what begins at the same place, unchanged. */
static PyObject *made(values *self, looked *it, PyObject *known, PyObject *before) {
    PyObject *shape = shared_shape(self, it->shape), *stride = NULL, *seen = NULL;
    PyObject *width = PyDict_GetItemWithError(self->widths, it->dtype);
    Py_ssize_t size = shape ? product(shape) : -1, bytes = width ? PyLong_AsSsize_t(width) : -1;
    if (size < 0 || bytes < 0) return NULL;
    if (!it->ordered) {
        PyObject *layout = NULL;
        stride = ask(self->stride, it->tensor);
        if (stride && self->counts) layout = PyObject_CallFunctionObjArgs(self->layout_of, shape, stride, NULL);
        int dense = layout ? PyLong_Check(layout) : stride && !self->counts ? 1 : -1;
        Py_XDECREF(layout);
        if (dense <= 0) {
            Py_XDECREF(stride);
            return dense < 0 ? NULL
                             : PyObject_CallFunctionObjArgs(self->new, it->tensor, it->place, known ? known : Py_None,
                                                            NULL);
        }
    }
    seen = fresh(self, it, shape);
    if (seen && stride && PyObject_SetAttr(seen, self->n_stride, stride) < 0) Py_CLEAR(seen);
    Py_XDECREF(stride);
    /* Without an address: on meta, and torch's own tensors of zeros. */
    int counted = self->counts && size && bytes && it->address;
    if (seen && counted && complete(self, it, seen, known, before, size, bytes) < 0) Py_CLEAR(seen);
    return seen;
}

/* What is known of an address is another snapshot from now on. */
static int renew(values *self, looked *it, PyObject *known, PyObject *memory, PyObject *seen) {
    int counted = goes_on(self, it, memory);
    if (counted <= 0) return counted;
    if (put(known, self->n_version, PyLong_FromSsize_t(it->version)) < 0) return -1;
    return PyObject_SetAttr(known, self->n_seen, seen);
}

/* As Values._new, of a tensor that looks as the known one, and was written to since. */
static PyObject *again(values *self, looked *it, PyObject *known, PyObject *memory, PyObject *before) {
    PyObject *shape = PyObject_GetAttr(before, self->n_shape), *count = PyObject_GetAttr(known, self->n_layout);
    PyObject *begin = ask(self->begin, it->storage), *width = PyDict_GetItemWithError(self->widths, it->dtype);
    PyObject *seen = shape && count && begin && width ? fresh(self, it, shape) : NULL;
    if (seen) {
        Py_ssize_t bytes = PyLong_AsSsize_t(width);
        int done = has_memory(self, it, begin, PyLong_AsSsize_t(count) * bytes);
        if (done > 0) done = fill(self, it, seen, count, bytes) < 0 ? -1 : renew(self, it, known, memory, seen);
        if (done < 0) Py_CLEAR(seen);
    }
    Py_XDECREF(shape);
    Py_XDECREF(count);
    Py_XDECREF(begin);
    return seen;
}

/* How a tensor is to what was seen at its address: another, elements of it, the same and written to since, the same. */
enum relation { FAILED, OTHER, PART, WRITTEN, SAME };

static int looks_like(values *self, looked *it, PyObject *before) {
    PyObject *stride = PyObject_GetAttr(before, self->n_stride), *shape = PyObject_GetAttr(before, self->n_shape);
    PyObject *name = PyObject_GetAttr(before, self->n_dtype);
    int alike = stride && shape && name ? stride == self->UNSET && it->ordered && name == it->name : -1;
    if (alike > 0) alike = PyObject_RichCompareBool(shape, it->shape, Py_EQ);
    Py_XDECREF(stride);
    Py_XDECREF(shape);
    Py_XDECREF(name);
    return alike;
}

static enum relation relation(values *self, looked *it, PyObject *known, PyObject *memory, PyObject *before) {
    /* The storage lives, so that it is the same memory, and torch counts what is written to it. */
    int lives, same = leads(self, memory, it->storage, &lives);
    int counted = same > 0 ? truth(PyObject_GetAttr(memory, self->n_counted)) : same;
    if (counted <= 0 || it->negative) return counted < 0 ? FAILED : OTHER;
    it->version = whole(PyObject_GetAttr(it->tensor, self->n__version));
    Py_ssize_t then = whole(PyObject_GetAttr(known, self->n_version));
    Py_ssize_t last = whole(PyObject_GetAttr(memory, self->n_version));
    int alike = PyErr_Occurred() ? -1 : looks_like(self, it, before), unwritten = it->version == then && then == last;
    if (alike <= 0) return alike < 0 ? FAILED : unwritten ? PART : OTHER;
    if (!unwritten) return WRITTEN;
    PyObject *grad = PyObject_GetAttr(before, self->n_requires_grad);
    Py_XDECREF(grad);
    return !grad ? FAILED : grad == it->grad ? SAME : PART;
}

static PyObject *of_known(values *self, looked *it, PyObject *known) {
    PyObject *seen = NULL, *before = NULL, *memory = PyObject_GetAttr(known, self->n_memory);
    if (memory && (before = PyObject_GetAttr(known, self->n_seen))) {
        switch (relation(self, it, known, memory, before)) {
        case OTHER: seen = made(self, it, NULL, NULL); break;
        case PART: seen = made(self, it, known, before); break;
        case WRITTEN: seen = again(self, it, known, memory, before); break;
        case SAME: seen = Py_NewRef(before); break;
        case FAILED: break;
        }
    }
    Py_XDECREF(memory);
    Py_XDECREF(before);
    return seen;
}

static PyObject *take_tensor(values *self, PyObject *tensor) {
    looked it = {.tensor = tensor};
    PyObject *seen = NULL;
    if (look(self, &it)) {
        PyObject *known = PyDict_GetItemWithError(self->known, it.place);
        Py_XINCREF(known);
        if (known)
            seen = of_known(self, &it, known);
        else if (!PyErr_Occurred())
            seen = made(self, &it, NULL, NULL);
        Py_XDECREF(known);
    }
    look_away(&it);
    if (seen || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))) return seen;
    PyErr_Clear();
    return ask(self->tensor, tensor);
}

static PyObject *plain(values *self, PyObject *kind, PyObject *value) {
    return PyObject_CallFunctionObjArgs(self->PlainEntry, kind, value, NULL);
}

/* Are these several tensors of a device, which counts them together? */
static int are_far(values *self, PyObject *members, Py_ssize_t count) {
    PyObject *first = count > SINGLE && self->counts ? PySequence_GetItem(members, 0) : NULL;
    PyObject *kind = (PyObject *)(first ? Py_TYPE(first) : NULL);
    int far = 0;
    if (first && (kind == self->Tensor || kind == self->Parameter)) {
        int near = truth(PyObject_GetAttr(first, self->n_is_cpu));
        far = near < 0 ? -1 : !near;
    }
    Py_XDECREF(first);
    return far;
}

/* The snapshots of the members of a list or a tuple, in a list. */
static PyObject *take_members(PyObject *self, PyObject *members) {
    Py_ssize_t count = PySequence_Size(members);
    int far = are_far((values *)self, members, count);
    if (far) return far < 0 ? NULL : ask(((values *)self)->together, members);
    PyObject *list = count < 0 ? NULL : PyList_New(count);
    for (Py_ssize_t index = 0; list && index < count; index++) {
        PyObject *member = PySequence_GetItem(members, index), *one = member ? take(self, member) : NULL;
        Py_XDECREF(member);
        if (!one || PyList_SetItem(list, index, one) < 0) Py_CLEAR(list);
    }
    return list;
}

/* A tuple: Python's garbage collection soon leaves one of snapshots alone, and a list never. */
PyObject *take_tuple(PyObject *self, PyObject *members) {
    PyObject *list = take_members(self, members), *tuple = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

/* Snapshots.take */
PyObject *take(PyObject *object, PyObject *value) {
    values *self = (values *)object;
    PyObject *kind = (PyObject *)Py_TYPE(value);
    if (value == Py_None) return Py_NewRef(value);
    if (self->quick && (kind == self->Tensor || kind == self->Parameter)) return take_tensor(self, value);
    if (self->scalars) {
        if (PyBool_Check(value)) return plain(self, self->n_bool, value);
        if (PyLong_CheckExact(value)) return plain(self, self->n_int, value);
        if (PyUnicode_CheckExact(value)) return plain(self, self->n_str, value);
        if (PyFloat_CheckExact(value) && isfinite(PyFloat_AsDouble(value))) return plain(self, self->n_float, value);
    }
    if (PyList_CheckExact(value)) return take_members(object, value);
    if (PyTuple_CheckExact(value)) return take_tuple(object, value);
    PyObject *way = PyDict_GetItemWithError(self->leaves, kind);
    return !way && PyErr_Occurred() ? NULL : ask(way ? way : self->other, value);
}

static const char *const given_names[] = {GIVEN(TEXT) NULL};
static const char *const asked_names[] = {ASKED(TEXT) "torch.Tensor", "stride", NULL};

static int flag(PyObject *given, const char *name) { return truth(PyObject_GetAttrString(given, name)); }

static Py_ssize_t limit(PyObject *given, const char *name) { return whole(PyObject_GetAttrString(given, name)); }

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *given;
    (void)kwargs;
    if (!PyArg_UnpackTuple(args, "Values", 1, 1, &given)) return NULL;
    values *self = (values *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self || take_needs(self->all, given, given_names, asked_names) < 0) goto failed;
    self->quick = flag(given, "quick");
    self->counts = flag(given, "counts");
    self->remembers = flag(given, "remembers");
    self->scalars = flag(given, "scalars");
    self->limits.small = limit(given, "small_bytes");
    self->limits.kept = limit(given, "kept_integers");
    self->limits.few = limit(given, "few");
    self->limits.looked = limit(given, "looked");
    self->limits.shared = limit(given, "shared");
    if (!PyErr_Occurred()) return (PyObject *)self;
failed:
    Py_XDECREF(self);
    return NULL;
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return visit_all(((values *)self)->all, ALL, visit, arg);
}

static int clear(PyObject *self) {
    clear_all(((values *)self)->all, ALL);
    return 0;
}

static void deallocate(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"take", take, METH_O, "take(value) -> the snapshot of an argument or a result"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, create}, {Py_tp_dealloc, deallocate}, {Py_tp_traverse, traverse},
    {Py_tp_clear, clear}, {Py_tp_methods, methods},
    {Py_tp_doc, "Values(given): takes snapshots; see capture/torch/values.py."}, {0, NULL},
};

static PyType_Spec spec = {
    "pytest_probe.capture._kernel.Values", sizeof(values), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots,
};

PyObject *values_type(PyObject *module) { return PyType_FromModuleAndSpec(module, &spec, NULL); }
