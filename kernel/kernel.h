/* What the files of the kernel share: statistics of memory, keys of stacks, and how they speak to Python.
 *
 * All of it knows Python's limited API, so that one build serves every CPython from 3.10 on, and no framework's.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdint.h>
#include <structmember.h>

/* As capture/kernel.py numbers them. */
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

/* Elements in memory, as Python gives them. */
typedef struct {
    const char *address;
    Py_ssize_t count;
    enum dtype dtype;
} elements;

/* Elements of a sample at most. */
#define SAMPLED 1024

void measure_all(statistics *found, const elements *all);
void count_masses(masses *found, const elements *all);
int count_sample(masses *found, const elements *all, PyObject *extents, PyObject *strides, Py_ssize_t *count);
PyObject *extreme(const statistics *found, enum dtype dtype, int high);
PyObject *integers(const elements *all);

/* The names of what a frame has. */
typedef struct {
    PyObject *instruction, *back;
} frame_names;

int name_frames(frame_names *names);
void forget_frames(frame_names *names);
PyObject *stack_key(const frame_names *names, PyObject *frame);

/* The names of what a node of autograd's has, and the class of those that keep a leaf's gradient; borrowed. */
typedef struct {
    PyObject *sequence_nr, *next_functions, *variable, *accumulate;
} gradient_names;

PyObject *border_of(const gradient_names *names, PyObject *arguments, PyObject *outputs, PyObject *start);

/* Each makes a type of the module. */
PyObject *values_type(PyObject *module);
PyObject *calls_type(PyObject *module);

/* An object of C's takes what it works with from attributes of one of Python's, and asks others for attributes by name:
 * lists of both as macros, of which these make fields. The fields are one array too. */
#define FIELD(name) PyObject *name;
#define NAMED(name) PyObject *n_##name;
#define TEXT(name) #name,
#define ONE(name) +1

int take_needs(PyObject **fields, PyObject *given, const char *const *needs, const char *const *names);
int visit_all(PyObject **fields, int count, visitproc visit, void *argument);
void clear_all(PyObject **fields, int count);

/* These take over what they are given, of which NULL stands for an error that is set; -1 is an error. */
int truth(PyObject *found);
Py_ssize_t whole(PyObject *found);
int put(PyObject *owner, PyObject *name, PyObject *value);

/* method(object) */
PyObject *ask(PyObject *method, PyObject *object);
/* value, of the values of C's */
PyObject *take(PyObject *values, PyObject *value);
PyObject *take_tuple(PyObject *values, PyObject *members);
