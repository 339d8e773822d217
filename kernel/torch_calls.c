/* What torch's function mode calls, as capture/torch/hooks.py does it: which rule a function has, the call
 * itself, and its entry; and what autograd calls where gradients come to a recorded call, or leave it.
 *
 * It has no frame of its own, so that a function of torch's in C is called from the program's own line. What is rare is
 * left to Python: calls that are seen by modes and classes of the program's own as well, calls inside transforms, and
 * scaled products.
 */
#include "kernel.h"

/* What the constructor's argument has. slow is TorchHooks.call; asked gives what calls from the line behind a frame of
 * torch's function that asks for modes, whose code is asking. */
#define GIVEN(X)                                                                                                       \
    X(mode) X(hooks) X(values) X(table) X(learn) X(slow) X(clean) X(asking) X(asked) X(aliasing)                       \
    X(numbers) X(stacks) X(stack_number) X(checkpoints) X(recomputes) X(place) X(taken) X(distrust)                    \
    X(by_operator) X(grads) X(set_grads) X(nodes) X(autocasts) X(default_dtype) X(float32) X(dispatching) X(modes)     \
    X(mode_at) X(level) X(tracing) X(surroundings) X(without_gradients) X(wanting) X(watch) X(ForwardEntry) X(NamedEntry)         \
    X(UNSET) X(accumulate) X(unseen) X(task) X(complete) X(slow_fire) X(Seen) X(PlainEntry) X(Tensor) X(Parameter)     \
    X(Size) X(RecordedFunction) X(Inside)

/* Names of attributes, of methods and of a keyword. */
#define ASKED(X)                                                                                                       \
    X(name) X(operator) X(wanted) X(draws) X(writes) X(requires_grad) X(grad_fn) X(output_nr) X(output) X(extend)      \
    X(put) X(failed) X(device) X(_seeing) X(_recorder) X(_placed) X(overridden) X(above)                   \
    X(_sequence_nr) X(next_functions) X(variable) X(_sums) X(_casts) X(_task) X(_open) X(incoming) X(outgoing)         \
    X(missing) X(__enter__) X(__exit__)

typedef struct {
    PyObject_HEAD
    union {
        struct {
            GIVEN(FIELD) ASKED(NAMED)
        };
        PyObject *all[GIVEN(ONE) ASKED(ONE)];
    };
    frame_names frames;
    int inputs, outputs, forward, backward, stacked, copies;
} calls;

enum { ALL = GIVEN(ONE) ASKED(ONE) };

/* A call of the program's. All are borrowed; named is NULL where there are no keywords. modes: function modes of the
 * program's see it as well. */
typedef struct {
    PyObject *rule, *function, *types, *given, *named;
    int modes;
} program_call;

static PyObject *attribute(PyObject *object, PyObject *name) { return PyObject_GetAttr(object, name); }

static Py_ssize_t count_of(PyObject *function) { return whole(PyObject_CallNoArgs(function)); }

/* Is what a function without arguments gives this object? */
static int gives(PyObject *function, PyObject *object) {
    PyObject *found = PyObject_CallNoArgs(function);
    Py_XDECREF(found);
    return found ? found == object : -1;
}

/* The frame that calls, and whether it is that of torch's function which asks for modes; borrowed. */
static PyObject *calling_frame(calls *self, int *asks) {
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    PyObject *code = frame ? (PyObject *)PyFrame_GetCode((PyFrameObject *)frame) : NULL;
    *asks = code && code == self->asking;
    Py_XDECREF(code);
    return frame;
}

/* Make the call, as from the program's line. */
static PyObject *make(calls *self, const program_call *it) {
    int asks;
    PyObject *frame = calling_frame(self, &asks);
    if (!asks) return PyObject_Call(it->function, it->given, it->named);
    PyObject *named = it->named ? Py_NewRef(it->named) : PyDict_New();
    PyObject *site = named ? ask(self->asked, frame) : NULL, *result = NULL;
    if (site) result = PyObject_CallFunctionObjArgs(site, it->function, it->given, named, NULL);
    Py_XDECREF(site);
    Py_XDECREF(named);
    return result;
}

/* As CallHooks._made. */
static PyObject *make_and_distrust(calls *self, const program_call *it, int writes) {
    PyObject *result = make(self, it);
    if (!result || !writes) return result;
    PyObject *done = ask(self->distrust, it->given), *values = NULL;
    if (done && it->named && (values = PyDict_Values(it->named))) {
        Py_DECREF(done);
        done = ask(self->distrust, values);
    }
    if (!done || PyErr_Occurred()) Py_CLEAR(result);
    Py_XDECREF(values);
    Py_XDECREF(done);
    return result;
}

/* Do classes of the program's own see the call? Methods without arguments name torch's own class as well. */
static int is_overridden(calls *self, const program_call *it) {
    Py_ssize_t count = PySequence_Size(it->types), others = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *kind = PySequence_GetItem(it->types, index);
        if (!kind) return -1;
        others += kind != self->Tensor && kind != self->Parameter;
        Py_DECREF(kind);
    }
    return count < 0 ? -1 : others > 0;
}

/* Leave the call to Python. */
static PyObject *make_slowly(calls *self, const program_call *it) {
    int overridden = is_overridden(self, it);
    PyObject *named = it->named ? Py_NewRef(it->named) : PyDict_New(), *args = NULL, *result = NULL;
    PyObject *options = overridden < 0 ? NULL : PyDict_New(), *above = options ? PyLong_FromLong(1) : NULL;
    if (named && above && PyDict_SetItem(options, self->n_above, above) == 0 &&
        PyDict_SetItem(options, self->n_overridden, overridden ? Py_True : Py_False) == 0)
        args = PyTuple_Pack(4, it->rule, it->function, it->given, named);
    if (args) result = PyObject_Call(self->slow, args, options);
    Py_XDECREF(args);
    Py_XDECREF(above);
    Py_XDECREF(options);
    Py_XDECREF(named);
    return result;
}

/* Has the call a device by a word or a number, which an entry has as a device? */
static int has_plain_device(calls *self, const program_call *it) {
    PyObject *device = it->named ? PyDict_GetItemWithError(it->named, self->n_device) : NULL;
    return device && (PyUnicode_CheckExact(device) || PyLong_CheckExact(device));
}

/* How many function modes see the call as well, such as that of torch.device; -1 for an error, and where ours is among
 * them once more. */
static int other_modes(calls *self) {
    int count = (int)count_of(self->modes);
    for (int index = 0; index < count; index++) {
        PyObject *place = PyLong_FromLong(index), *mode = place ? ask(self->mode_at, place) : NULL;
        int ours = !mode || mode == self->mode;
        Py_XDECREF(place);
        Py_XDECREF(mode);
        if (ours) return -1;
    }
    return count;
}

/* Is it one that is recorded here? -1 for an error. */
static int is_common(calls *self, program_call *it) {
    if ((PyObject *)Py_TYPE(it->rule) != self->RecordedFunction) return 0;
    Py_ssize_t others = is_overridden(self, it);
    if (others == 0) others = count_of(self->dispatching);
    if (others) return others < 0 ? -1 : 0;
    it->modes = other_modes(self);
    if (it->modes < 0) return PyErr_Occurred() ? -1 : 0;
    int none = gives(self->level, Py_None);
    if (none > 0) none = gives(self->tracing, Py_None);
    return none > 0 ? !has_plain_device(self, it) : none;
}

/* "Functional.linear.0.forward" */
static PyObject *next_name(calls *self, PyObject *rule) {
    PyObject *name = attribute(rule, self->n_name), *counter = name ? PyObject_GetItem(self->numbers, name) : NULL;
    PyObject *number = counter ? PyIter_Next(counter) : NULL;
    PyObject *entry = number ? PyUnicode_FromFormat("%U.%S.forward", name, number) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(counter);
    Py_XDECREF(number);
    return entry;
}

static PyObject *taken_dict(calls *self, PyObject *named) {
    PyObject *trees = PyDict_New(), *key, *value;
    Py_ssize_t place = 0;
    while (trees && named && PyDict_Next(named, &place, &key, &value)) {
        PyObject *tree = take(self->values, value);
        if (!tree || PyDict_SetItem(trees, key, tree) < 0) Py_CLEAR(trees);
        Py_XDECREF(tree);
    }
    return trees;
}

/* Add a tensor that wants a gradient, or those inside a value, by gradients.wanting. Takes the place over. */
static int add_wanting(calls *self, PyObject *found, PyObject *place, PyObject *value, PyObject *tree) {
    PyObject *one = NULL, *done = NULL;
    if (!place) return -1;
    if ((PyObject *)Py_TYPE(tree) == self->Seen) {
        PyObject *node = attribute(value, self->n_grad_fn), *number = node ? attribute(value, self->n_output_nr) : NULL;
        one = number ? PyTuple_Pack(4, place, value, node, number) : NULL;
        if (one && PyList_Append(found, one) == 0) done = Py_NewRef(Py_None);
        Py_XDECREF(node);
        Py_XDECREF(number);
    } else if ((one = PyObject_CallFunctionObjArgs(self->wanting, value, place, NULL))) {
        done = PyObject_CallMethodObjArgs(found, self->n_extend, one, NULL);
    }
    Py_XDECREF(one);
    Py_XDECREF(done);
    Py_DECREF(place);
    return done ? 0 : -1;
}

/* May there be a tensor in it that wants a gradient? */
static int may_want(calls *self, PyObject *tree) {
    PyObject *kind = (PyObject *)Py_TYPE(tree);
    if (kind == self->Seen) return truth(attribute(tree, self->n_requires_grad));
    return tree != Py_None && kind != self->PlainEntry;
}

static int find_wanting(calls *self, PyObject *found, const char *half, PyObject *tuple, PyObject *trees) {
    for (Py_ssize_t index = 0; index < PyTuple_Size(tuple); index++) {
        PyObject *tree = PyTuple_GetItem(trees, index);
        int wants = tree ? may_want(self, tree) : -1;
        if (wants > 0)
            wants = add_wanting(self, found, PyUnicode_FromFormat("%s.%zd", half, index), PyTuple_GetItem(tuple, index),
                                tree);
        if (wants < 0) return -1;
    }
    return 0;
}

static int find_wanting_named(calls *self, PyObject *found, PyObject *named, PyObject *trees) {
    PyObject *key, *value;
    Py_ssize_t place = 0;
    while (named && PyDict_Next(named, &place, &key, &value)) {
        PyObject *tree = PyDict_GetItemWithError(trees, key);
        int wants = tree ? may_want(self, tree) : -1;
        if (wants > 0) wants = add_wanting(self, found, PyUnicode_FromFormat("kwargs.%S", key), value, tree);
        if (wants < 0) return -1;
    }
    return 0;
}

/* What only readers of our own know, UNSET where nothing. */
static PyObject *probe_of(calls *self, PyObject *rule, int grads) {
    int special = truth(attribute(rule, self->n_draws));
    if (!special) special = truth(PyObject_CallNoArgs(self->autocasts));
    if (!special) {
        special = gives(self->default_dtype, self->float32);
        special = special < 0 ? -1 : !special;
    }
    if (special < 0) return NULL;
    if (special) return PyObject_CallFunctionObjArgs(self->surroundings, rule, grads ? Py_True : Py_False, NULL);
    return Py_NewRef(grads ? self->UNSET : self->without_gradients);
}

/* The number of the stack that calls, -1 where stacks are not recorded. */
static PyObject *where_of(calls *self, PyObject *frame) {
    if (!self->stacked || !frame) return PyLong_FromLong(-1);
    PyObject *key = stack_key(&self->frames, frame);
    PyObject *number = key ? PyDict_GetItemWithError(self->stacks, key) : NULL;
    Py_XINCREF(number);
    if (key && !number && !PyErr_Occurred()) number = ask(self->stack_number, frame);
    Py_XDECREF(key);
    return number;
}

static PyObject *recomputes(calls *self, PyObject *where) {
    int checkpoint = PySet_Contains(self->checkpoints, where);
    if (checkpoint < 0) return NULL;
    return checkpoint ? ask(self->recomputes, where) : Py_NewRef(Py_False);
}

/* The entry of these snapshots, its results excepted; wanting is NULL where gradients are off. */
static PyObject *entry_of(calls *self, const program_call *it, PyObject *name, PyObject *wanting, PyObject *trees,
                          PyObject *named) {
    int asks, fine = 1;
    PyObject *frame = calling_frame(self, &asks), *probe = probe_of(self, it->rule, wanting != NULL);
    PyObject *where = NULL, *again = NULL, *body = NULL, *entry = NULL;
    if (probe && wanting && self->backward)
        fine = find_wanting(self, wanting, "input", it->given, trees) == 0 &&
               find_wanting_named(self, wanting, it->named, named) == 0;
    if (probe && fine && (where = where_of(self, frame)) && (again = recomputes(self, where)))
        body = PyObject_CallFunctionObjArgs(self->ForwardEntry, self->inputs ? trees : self->UNSET,
                                            self->inputs ? named : self->UNSET, again, self->UNSET, self->UNSET, probe,
                                            NULL);
    if (body) entry = PyObject_CallFunctionObjArgs(self->NamedEntry, name, body, where, NULL);
    int placed = entry ? truth(attribute(self->hooks, self->n__placed)) : 0;
    PyObject *done = placed > 0 ? ask(self->place, entry) : NULL;
    if (placed < 0 || (placed && !done)) Py_CLEAR(entry);
    Py_XDECREF(done);
    Py_XDECREF(probe);
    Py_XDECREF(where);
    Py_XDECREF(again);
    Py_XDECREF(body);
    return entry;
}

/* What was turned off: gradients, and function modes, by a guard; NULL where none is on. */
typedef struct {
    int grads;
    PyObject *guard;
} quiet;

/* From here on torch is asked without them. */
static int begin_quiet(calls *self, quiet *it, int grads, int modes) {
    PyObject *done = Py_NewRef(Py_None);
    *it = (quiet){grads, modes ? PyObject_CallNoArgs(self->unseen) : NULL};
    if (modes) {
        Py_DECREF(done);
        done = it->guard ? PyObject_CallMethodObjArgs(it->guard, self->n___enter__, NULL) : NULL;
        if (!done) Py_CLEAR(it->guard);
    }
    if (done && grads) {  /* which modes would see */
        Py_DECREF(done);
        done = ask(self->set_grads, Py_False);
    }
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* An error that is set stays. */
static int end_quiet(calls *self, quiet *it) {
    PyObject *type, *value, *trace, *done;
    int failed = 0;
    PyErr_Fetch(&type, &value, &trace);
    if (it->grads) {
        failed |= !(done = ask(self->set_grads, Py_True));
        Py_XDECREF(done);
    }
    if (it->guard) {
        done = PyObject_CallMethodObjArgs(it->guard, self->n___exit__, Py_None, Py_None, Py_None, NULL);
        failed |= !done;
        Py_XDECREF(done);
        Py_CLEAR(it->guard);
    }
    if (type) PyErr_Restore(type, value, trace);
    return failed ? -1 : 0;
}

/* The error that is set, out of the way. */
static PyObject *caught(void) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace) PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
}

/* Recorder.failed, for an error that is set; one that is no Exception stays: -1. */
static int tell_failed(calls *self, PyObject *recorder, PyObject *name) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyObject *error = caught();
    PyObject *done = PyObject_CallMethodObjArgs(recorder, self->n_failed, name, error, NULL);
    Py_XDECREF(error);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* As tell_failed, of what has the name. */
static int tell_failed_of(calls *self, PyObject *recorder, PyObject *owner) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *name = attribute(owner, self->n_name);
    int done = -1;
    if (name) {
        PyErr_Restore(type, value, trace);
        done = tell_failed(self, recorder, name);
        Py_DECREF(name);
    } else {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    }
    return done;
}

/* TorchHooks._begin: the entry, or None where that failed. */
static PyObject *begin(calls *self, PyObject *recorder, const program_call *it, PyObject *name, PyObject *wanting) {
    quiet around;
    int ready = begin_quiet(self, &around, wanting != NULL, it->modes) == 0;
    PyObject *trees = ready ? take_tuple(self->values, it->given) : NULL, *named = trees ? taken_dict(self, it->named) : NULL;
    PyObject *entry = named ? entry_of(self, it, name, wanting, trees, named) : NULL;
    Py_XDECREF(trees);
    Py_XDECREF(named);
    if (end_quiet(self, &around) < 0) Py_CLEAR(entry);
    return entry || tell_failed(self, recorder, name) < 0 ? entry : Py_NewRef(Py_None);
}

/* What a call gave, as a tuple: torch's functions give one thing, or several in a list or a tuple. */
static PyObject *outputs_of(calls *self, PyObject *result) {
    PyObject *kind = (PyObject *)Py_TYPE(result);
    int several = kind != self->Tensor && kind != self->Size && (PyList_Check(result) || PyTuple_Check(result));
    return several ? PySequence_Tuple(result) : PyTuple_Pack(1, result);
}

/* Watch for the gradients that go through the call. */
static int watch(calls *self, PyObject *entry, PyObject *wanting, PyObject *outputs, PyObject *trees, PyObject *start) {
    const gradient_names names = {self->n__sequence_nr, self->n_next_functions, self->n_variable, self->accumulate};
    PyObject *wanted = PyList_New(0), *border = NULL, *done = NULL;
    int casts = truth(PyObject_CallNoArgs(self->autocasts));
    if (wanted && casts >= 0 && find_wanting(self, wanted, "output", outputs, trees) == 0)
        border = casts ? Py_NewRef(Py_None) : border_of(&names, wanting, wanted, start);
    if (border && border != Py_None && !PyDict_Size(border))
        done = Py_NewRef(Py_None);
    else if (border)
        done = PyObject_CallFunctionObjArgs(self->watch, entry, wanting, wanted, start, border, NULL);
    Py_XDECREF(wanted);
    Py_XDECREF(border);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int hand_over(calls *self, PyObject *recorder, PyObject *entry) {
    PyObject *size = self->copies ? PyObject_CallNoArgs(self->taken) : PyLong_FromLong(0);
    PyObject *done = size ? PyObject_CallMethodObjArgs(recorder, self->n_put, entry, size, NULL) : NULL;
    Py_XDECREF(size);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int complete(calls *self, PyObject *recorder, PyObject *entry, PyObject *wanting, PyObject *result,
                    PyObject *start) {
    PyObject *outputs = outputs_of(self, result), *trees = outputs ? take_tuple(self->values, outputs) : NULL;
    int done = trees ? 0 : -1;
    if (trees && self->outputs) {
        PyObject *body = PyObject_GetAttrString(entry, "body");
        done = body ? PyObject_SetAttr(body, self->n_output, trees) : -1;
        Py_XDECREF(body);
    }
    if (done == 0 && start) done = watch(self, entry, wanting, outputs, trees, start);
    if (done == 0 && self->forward) done = hand_over(self, recorder, entry);
    Py_XDECREF(outputs);
    Py_XDECREF(trees);
    return done;
}

/* TorchHooks._end. */
static int end(calls *self, PyObject *recorder, const program_call *it, PyObject *entry, PyObject *wanting,
               PyObject *result, PyObject *start) {
    quiet around;
    int done = begin_quiet(self, &around, wanting != NULL, it->modes);
    if (done == 0) done = complete(self, recorder, entry, wanting, result, start);
    if (end_quiet(self, &around) < 0) done = -1;
    if (done == 0) return 0;
    return tell_failed_of(self, recorder, entry);
}

static PyObject *make_recorded(calls *self, PyObject *recorder, const program_call *it, int writes) {
    PyObject *name = next_name(self, it->rule), *wanting = NULL, *entry = NULL, *start = NULL, *result = NULL;
    int grads = name ? truth(PyObject_CallNoArgs(self->grads)) : -1;
    if (grads >= 0 && (!grads || (wanting = PyList_New(0)))) entry = begin(self, recorder, it, name, wanting);
    int asking = entry && wanting ? PyList_Size(wanting) > 0 : 0;
    if (entry && (!asking || (start = PyObject_CallNoArgs(self->nodes))))
        result = make_and_distrust(self, it, writes);
    if (result && entry != Py_None && end(self, recorder, it, entry, wanting, result, start) < 0) Py_CLEAR(result);
    Py_XDECREF(name);
    Py_XDECREF(wanting);
    Py_XDECREF(entry);
    Py_XDECREF(start);
    return result;
}

/* The rule of an operator of Python's, where one calls. Takes the rule over. */
static PyObject *rule_here(calls *self, PyObject *rule) {
    PyObject *operator = attribute(rule, self->n_operator), *place = NULL;
    int asks, by = 0;
    if (operator && operator != Py_None) {
        PyObject *frame = calling_frame(self, &asks);
        PyObject *code = frame ? (PyObject *)PyFrame_GetCode((PyFrameObject *)frame) : NULL;
        place = code ? attribute(frame, self->frames.instruction) : NULL;
        by = place ? truth(PyObject_CallFunctionObjArgs(self->by_operator, code, place, NULL)) : code ? -1 : 0;
        Py_XDECREF(code);
        Py_XDECREF(place);
    }
    if (!operator || by < 0) {
        Py_XDECREF(operator);
        Py_DECREF(rule);
        return NULL;
    }
    Py_DECREF(by ? rule : operator);
    return by ? operator : rule;
}

/* Make a call that is seen, of a function that has a rule. */
static PyObject *make_seen(calls *self, PyObject *recorder, program_call *it) {
    PyObject *rule = rule_here(self, Py_NewRef(it->rule)), *result = NULL;
    if (!rule) return NULL;
    it->rule = rule;
    int wanted = truth(attribute(rule, self->n_wanted)), writes = truth(attribute(rule, self->n_writes));
    if (wanted > 0 && writes >= 0)
        result = make_recorded(self, recorder, it, writes);
    else if (wanted == 0 && writes >= 0)
        result = make_and_distrust(self, it, writes);
    Py_DECREF(rule);
    return result;
}

/* Make a call that hands out memory. */
static PyObject *make_aliasing(calls *self, const program_call *it) {
    PyObject *tensor = PyTuple_GetItem(it->given, 0), *done = tensor ? ask(self->distrust, tensor) : NULL;
    Py_XDECREF(done);
    return done ? make(self, it) : NULL;
}

/* TorchHooks.call */
static PyObject *make_any(calls *self, program_call *it) {
    if (it->rule == Py_None) return make(self, it);
    if (it->rule == self->aliasing) return make_aliasing(self, it);
    int seeing = truth(attribute(self->hooks, self->n__seeing));
    if (seeing <= 0) return seeing < 0 ? NULL : make(self, it);
    int common = is_common(self, it);
    if (common <= 0) return common < 0 ? NULL : make_slowly(self, it);
    PyObject *recorder = attribute(self->hooks, self->n__recorder), *result = NULL;
    if (recorder) result = recorder == Py_None ? make(self, it) : make_seen(self, recorder, it);
    Py_XDECREF(recorder);
    return result;
}

/* The rule of a function, None where it is not recorded. */
static PyObject *rule_of(calls *self, PyObject *function) {
    PyObject *rule = PyDict_GetItemWithError(self->table, function);
    if (rule) return Py_NewRef(rule);
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return NULL;
        PyErr_Clear();
    }
    return ask(self->learn, function);
}

/* Take our frames out of the traceback of the error that is set. */
static void clean(calls *self) {
    PyObject *error = caught(), *done = error ? ask(self->clean, error) : NULL;
    if (!done) PyErr_Clear();
    Py_XDECREF(done);
    if (error) {
        PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(error)), error, PyException_GetTraceback(error));
    }
}

static PyObject *called(PyObject *object, PyObject *args, PyObject *kwargs) {
    calls *self = (calls *)object;
    program_call it = {0};
    PyObject *named = NULL, *result = NULL, *inside = NULL;
    (void)kwargs;
    if (!PyArg_UnpackTuple(args, "__torch_function__", 3, 4, &it.function, &it.types, &it.given, &named)) return NULL;
    if (named && named != Py_None && PyDict_Size(named)) it.named = named;
    PyObject *given = PySequence_Tuple(it.given), *rule = given ? rule_of(self, it.function) : NULL;
    it.given = given;
    if (rule && (PyObject *)Py_TYPE(rule) == self->Inside) {  /* a tuple, which holds both */
        inside = rule;
        it.function = PyTuple_GetItem(inside, 0);
        rule = Py_XNewRef(it.function ? PyTuple_GetItem(inside, 1) : NULL);
    }
    it.rule = rule;
    if (rule) result = make_any(self, &it);
    Py_XDECREF(given);
    Py_XDECREF(rule);
    Py_XDECREF(inside);
    if (!result) clean(self);
    return result;
}

/* What autograd calls for a node at a call's border, as functools.partial gives it. Borrowed. */
typedef struct {
    PyObject *watched, *outs, *ins, *in_grads, *out_grads;
} passing;

/* Is it the first backward that comes, of a call whose gradients are neither sums nor casts? */
static int is_plain(calls *self, const passing *it) {
    PyObject *sums = attribute(it->watched, self->n__sums), *casts = attribute(it->watched, self->n__casts);
    PyObject *task = attribute(it->watched, self->n__task);
    int plain = sums && casts && task ? !PyDict_Size(sums) && !PyDict_Size(casts) : -1;
    if (plain > 0 && task != Py_None) {
        PyObject *now = PyObject_CallNoArgs(self->task);
        plain = now ? PyObject_RichCompareBool(now, task, Py_EQ) : -1;
        Py_XDECREF(now);
    }
    Py_XDECREF(sums);
    Py_XDECREF(casts);
    Py_XDECREF(task);
    return plain;
}

/* The gradients of these seats, in the dict of their places; those that left may be None. */
static int keep_gradients(calls *self, PyObject *kept, PyObject *seats, PyObject *gradients, int left) {
    for (Py_ssize_t index = 0; kept && index < PyList_Size(seats); index++) {
        PyObject *seat = PyList_GetItem(seats, index);
        PyObject *gradient = PyTuple_GetItem(gradients, PyLong_AsSsize_t(PyTuple_GetItem(seat, 0)));
        if (!gradient) return -1;
        if (left && gradient == Py_None) continue;
        PyObject *tree = take(self->values, gradient);
        int done = tree ? PyDict_SetItem(kept, PyTuple_GetItem(seat, 1), tree) : -1;
        Py_XDECREF(tree);
        if (done < 0) return -1;
    }
    return kept ? 0 : -1;
}

/* Watched.on_gradient, and what follows where no more gradients are missing. */
static int on_gradient(calls *self, PyObject *recorder, const passing *it, Py_ssize_t missing) {
    PyObject *incoming = attribute(it->watched, self->n_incoming), *done = NULL;
    PyObject *outgoing = attribute(it->watched, self->n_outgoing), *open = NULL;
    if (keep_gradients(self, incoming, it->outs, it->out_grads, 0) == 0 &&
        keep_gradients(self, outgoing, it->ins, it->in_grads, 1) == 0 &&
        put(it->watched, self->n_missing, PyLong_FromSsize_t(missing - 1)) == 0) {
        if (missing == 1)
            done = PyObject_CallFunctionObjArgs(self->complete, recorder, it->watched, NULL);
        else if (put(it->watched, self->n__task, PyObject_CallNoArgs(self->task)) == 0 &&
                 (open = attribute(self->hooks, self->n__open)) && PyDict_SetItem(open, it->watched, Py_None) == 0)
            done = Py_NewRef(Py_None);
    }
    Py_XDECREF(incoming);
    Py_XDECREF(outgoing);
    Py_XDECREF(open);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* As on_gradient, where no function mode sees what torch is asked for, and without gradients. */
static int on_gradient_unseen(calls *self, PyObject *recorder, const passing *it, Py_ssize_t missing) {
    quiet around;
    int grads = truth(PyObject_CallNoArgs(self->grads)), done = grads < 0 ? -1 : 0;
    if (done == 0) {
        done = begin_quiet(self, &around, grads, 1);
        if (done == 0) done = on_gradient(self, recorder, it, missing);
        if (end_quiet(self, &around) < 0) done = -1;
    }
    return done;
}

/* Is this passing counted already? An error that is set stays. */
static int has_come(calls *self, const passing *it, Py_ssize_t missing) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_ssize_t now = whole(attribute(it->watched, self->n_missing));
    PyErr_Restore(type, value, trace);
    return now != missing;
}

/* TorchHooks._fire, which does what is not plain, or raises. */
static PyObject *fire(PyObject *object, PyObject *args) {
    calls *self = (calls *)object;
    passing it;
    if (!PyArg_UnpackTuple(args, "fire", 5, 5, &it.watched, &it.outs, &it.ins, &it.in_grads, &it.out_grads))
        return NULL;
    PyObject *recorder = attribute(self->hooks, self->n__recorder);
    Py_ssize_t missing = recorder ? whole(attribute(it.watched, self->n_missing)) : -1;
    int done = 1;
    if (recorder && recorder != Py_None && missing > 0 && count_of(self->dispatching) == 0 && is_plain(self, &it) > 0)
        done = on_gradient_unseen(self, recorder, &it, missing);
    int counted = done < 0 && has_come(self, &it, missing);
    if (counted) done = tell_failed_of(self, recorder, it.watched);
    Py_XDECREF(recorder);
    if (done == 0) return Py_NewRef(Py_None);
    if (counted || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))) return NULL;
    PyErr_Clear();
    return PyObject_Call(self->slow_fire, args, NULL);
}

static const char *const given_names[] = {GIVEN(TEXT) NULL};
static const char *const asked_names[] = {ASKED(TEXT) NULL};

static int flag(PyObject *given, const char *name) { return truth(PyObject_GetAttrString(given, name)); }

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *given;
    (void)kwargs;
    if (!PyArg_UnpackTuple(args, "Calls", 1, 1, &given)) return NULL;
    calls *self = (calls *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self || name_frames(&self->frames) < 0 || take_needs(self->all, given, given_names, asked_names) < 0) {
        Py_XDECREF(self);
        return NULL;
    }
    self->inputs = flag(given, "inputs");
    self->outputs = flag(given, "outputs");
    self->forward = flag(given, "forward");
    self->backward = flag(given, "backward");
    self->stacked = flag(given, "stacked");
    self->copies = flag(given, "copies");
    if (PyErr_Occurred()) Py_CLEAR(self);
    return (PyObject *)self;
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return visit_all(((calls *)self)->all, ALL, visit, arg);
}

static int clear(PyObject *self) {
    clear_all(((calls *)self)->all, ALL);
    forget_frames(&((calls *)self)->frames);
    return 0;
}

static void deallocate(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* torch wants a method of the mode's. */
static PyMemberDef members[] = {
    {"__self__", T_OBJECT, offsetof(calls, mode), READONLY, "the mode"},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef methods[] = {
    {"fire", fire, METH_VARARGS, "fire(watched, outs, ins, in_grads, out_grads): gradients went through a node"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, create}, {Py_tp_dealloc, deallocate}, {Py_tp_traverse, traverse}, {Py_tp_clear, clear},
    {Py_tp_call, called}, {Py_tp_members, members}, {Py_tp_methods, methods},
    {Py_tp_doc, "Calls(given)(function, types, args, kwargs): see capture/torch/hooks.py."}, {0, NULL},
};

static PyType_Spec spec = {
    "pytest_probe.capture._kernel.Calls", sizeof(calls), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots,
};

PyObject *calls_type(PyObject *module) { return PyType_FromModuleAndSpec(module, &spec, NULL); }
