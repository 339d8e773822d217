/* Elements of any floating dtype as float64, and float64 as NumPy casts it to them. */
#include "kernel.h"

INLINE float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE double from_bfloat16(uint16_t half) { return (double)from_bits((uint32_t)half << 16); }

/* By float64, lest the CPU takes a subnormal float32 for zero: subnormal ones are read as 2**-14 and so much, and
 * 2**-14 is taken away. */
INLINE double from_float16(uint16_t half) {
    const double least = 0x1p-14;
    uint64_t size = (uint64_t)(half & 0x7fffu) << 42, sign = (uint64_t)(half & 0x8000u) << 48, bits;
    double small, usual;
    bits = size + ((uint64_t)(1023 - 14) << 52);
    memcpy(&small, &bits, sizeof small);
    small -= least;
    bits = size + (size >= ((uint64_t)31 << 52) ? (uint64_t)(2047 - 31) << 52 : (uint64_t)(1023 - 15) << 52);
    memcpy(&usual, &bits, sizeof usual);
    usual = size < ((uint64_t)1 << 52) ? small : usual;
    memcpy(&bits, &usual, sizeof bits);
    bits |= sign;
    memcpy(&usual, &bits, sizeof usual);
    return usual;
}

#define AS_IT_IS(value) ((double)(value))
#define READ(TYPE, WIDEN)                                                                                              \
    for (Py_ssize_t index = 0; index < count; index++) {                                                               \
        TYPE element;                                                                                                  \
        memcpy(&element, from + (first + index) * (Py_ssize_t)sizeof element, sizeof element);                         \
        out[index] = WIDEN(element);                                                                                   \
    }

INLINE void widened(double *out, const char *from, enum dtype dtype, Py_ssize_t first, Py_ssize_t count) {
    switch (dtype) {
    case BFLOAT16: READ(uint16_t, from_bfloat16) break;
    case FLOAT16: READ(uint16_t, from_float16) break;
    case FLOAT32: READ(float, AS_IT_IS) break;
    default: READ(double, AS_IT_IS) break;
    }
}

/* As NumPy casts float64 to bfloat16: by way of float32, ties to even; NaN becomes any NaN. */
INLINE uint16_t to_bfloat16(double value) {
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* The distance between neighbours of a format in the binade of a number: the format's smallest normal number and its
 * largest power of two, and an ulp of 1. */
INLINE double spacing_of(double value, double normal, double top, double unit) {
    uint64_t bits;
    double power;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0x7ff0000000000000u;
    memcpy(&power, &bits, sizeof power);
    power = power > normal ? power : normal;
    power = power < top ? power : top;
    return power * unit;
}
