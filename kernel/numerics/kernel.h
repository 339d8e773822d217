/* What the files of the kernel of numbers share. All of it knows Python's limited API and addresses, and no array's. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "-ffast-math would make subnormal numbers zero in the whole process that loads this"
#endif

#define INLINE static inline __attribute__((always_inline))

/* The same code again for CPUs with wider instructions; which one runs is found out when it is loaded. None may fuse a
 * product and a sum: NumPy does not, and numbers must be its bits. */
#if defined(__x86_64__) && !defined(BASELINE)
#define WIDE "avx2,bmi2"
#endif

/* As numerics/kernel.py numbers them. */
enum dtype { BFLOAT16, FLOAT16, FLOAT32, FLOAT64 };

/* As numerics/arrays.py has it. */
#define BLOCK 8192
/* Numbers that NumPy adds up in eight sums, before it adds sums. */
#define PAIRWISE 128

int has_wide(void);

PyObject *curve(PyObject *module, PyObject *given);
PyObject *stretched(PyObject *module, PyObject *given);
PyObject *uniforms(PyObject *module, PyObject *given);
PyObject *moved(PyObject *module, PyObject *given);
PyObject *below(PyObject *module, PyObject *given);
PyObject *power_sums(PyObject *module, PyObject *given);
PyObject *describe(PyObject *module, PyObject *given);
PyObject *ends(PyObject *module, PyObject *given);
PyObject *opened(PyObject *module, PyObject *given);
PyObject *piled(PyObject *module, PyObject *given);
