/* The nodes at the border of a call, as capture/torch/gradients.py finds them. */
#include "kernel.h"

/* What one call has: with more, and under autocast, Python finds the border. */
#define ARGUMENTS 16
#define NODES 64

/* arguments and outputs are lists of (place, tensor, node, number); nodes holds a reference to each. */
typedef struct {
    const gradient_names *names;
    PyObject *arguments, *start, *border;
    PyObject *nodes[NODES];
    int count, used[ARGUMENTS];
} search;

static PyObject *part(PyObject *tuple, Py_ssize_t index) { return PyTuple_GetItem(tuple, index); }

/* [].append(value), of the outs (0) or the ins (1) of a node of the border. */
static int add_seat(search *it, PyObject *node, Py_ssize_t half, PyObject *number, PyObject *place) {
    PyObject *seats = PyDict_GetItemWithError(it->border, node), *seat = NULL;
    if (!seats) {
        PyObject *made = PyErr_Occurred() ? NULL : Py_BuildValue("([][])");
        int done = made ? PyDict_SetItem(it->border, node, made) : -1;
        Py_XDECREF(made);
        if (done < 0) return -1;
        seats = made;
    }
    seat = PyTuple_Pack(2, number, place);
    int done = seat ? PyList_Append(part(seats, half), seat) : -1;
    Py_XDECREF(seat);
    return done;
}

/* Was it made by the call, to which no other came yet? -1 for an error. */
static int is_new(search *it, PyObject *node) {
    for (int index = 0; index < it->count; index++)
        if (it->nodes[index] == node) return 0;
    PyObject *number = PyObject_CallMethodObjArgs(node, it->names->sequence_nr, NULL);
    int made = number ? PyObject_RichCompareBool(number, it->start, Py_GE) : -1;
    Py_XDECREF(number);
    return made;
}

/* 1 where there is no room for another. */
static int add_node(search *it, PyObject *node) {
    if (it->count == NODES) return 1;
    it->nodes[it->count++] = Py_NewRef(node);
    return 0;
}

/* The place of the argument whose gradient goes there, borrowed; NULL where it is none's. One at two places gets its
 * gradients in their order. */
static PyObject *place_of(search *it, PyObject *leaf, PyObject *node, PyObject *number) {
    Py_ssize_t first = -1;
    for (Py_ssize_t index = 0; index < PyList_Size(it->arguments); index++) {
        PyObject *argument = PyList_GetItem(it->arguments, index), *own = part(argument, 2);
        int same = leaf ? own == Py_None && part(argument, 1) == leaf
                        : own == node && PyLong_AsLong(part(argument, 3)) == PyLong_AsLong(number);
        if (!same || it->used[index]) continue;
        if (first >= 0) {
            it->used[first] = 1;
            break;
        }
        first = index;
    }
    return first < 0 ? NULL : part(PyList_GetItem(it->arguments, first), 0);
}

/* What follows a node, by its next functions' index; 1 where there is no room, -1 for an error. */
static int follow(search *it, PyObject *node, Py_ssize_t index, PyObject *following, PyObject *number) {
    PyObject *leaf = NULL;
    int done = 0;
    if ((PyObject *)Py_TYPE(following) == it->names->accumulate &&
        !(leaf = PyObject_GetAttr(following, it->names->variable)))
        return -1;
    PyObject *place = place_of(it, leaf, following, number);
    if (place) {
        PyObject *seat = PyLong_FromSsize_t(index);
        done = seat ? add_seat(it, node, 1, seat, place) : -1;
        Py_XDECREF(seat);
    } else if (!leaf && (done = is_new(it, following)) > 0) {
        done = add_node(it, following);
    }
    Py_XDECREF(leaf);
    return done;
}

/* The nodes of the outputs, which are the first that are met. */
static int begin(search *it, PyObject *outputs) {
    int done = 0;
    for (Py_ssize_t index = 0; !done && index < PyList_Size(outputs); index++) {
        PyObject *output = PyList_GetItem(outputs, index), *node = part(output, 2);
        if (node == Py_None) continue;
        int met = PyDict_Contains(it->border, node), new = met ? met : is_new(it, node);
        if (new < 0) return -1;
        if (new && !met) done = add_node(it, node);
        if (new && !done) done = add_seat(it, node, 0, part(output, 3), part(output, 0));
    }
    return done;
}

static int walk(search *it) {
    PyObject *waiting[NODES];
    int left = it->count, done = 0;
    for (int index = 0; index < left; index++) waiting[index] = it->nodes[index];
    while (left && !done) {
        PyObject *node = waiting[--left], *next = PyObject_GetAttr(node, it->names->next_functions);
        int known = it->count;
        for (Py_ssize_t index = 0; next && !done && index < PyTuple_Size(next); index++) {
            PyObject *pair = part(next, index);
            if (part(pair, 0) != Py_None) done = follow(it, node, index, part(pair, 0), part(pair, 1));
        }
        if (!next || PyErr_Occurred()) done = -1;
        Py_XDECREF(next);
        for (; known < it->count; known++) waiting[left++] = it->nodes[known];
    }
    return done;
}

/* gradients._border of these arguments and outputs, None where Python has to find it. */
PyObject *border_of(const gradient_names *names, PyObject *arguments, PyObject *outputs, PyObject *start) {
    search it = {.names = names, .arguments = arguments, .start = start};
    int done = PyList_Size(arguments) > ARGUMENTS;
    if (!done && !(it.border = PyDict_New())) done = -1;
    if (!done) done = begin(&it, outputs);
    if (!done) done = walk(&it);
    for (int index = 0; index < it.count; index++) Py_DECREF(it.nodes[index]);
    if (done) Py_CLEAR(it.border);
    return done > 0 ? Py_NewRef(Py_None) : it.border;
}
