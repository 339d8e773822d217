/* Numbers that are interpolated in a table at uniform places, then mapped: what inputs/curves.py does with NumPy, with
 * the same bits; and values that move by uniform numbers, as check/run_kinds.py moves them. The uniform ones are those of
 * NumPy's Philox generator, which counts, so that each block is drawn without those before it. */
#include "reading.h"
#include <math.h>
#ifdef WIDE
#include <immintrin.h>
#endif

#ifndef __SIZEOF_INT128__
#error "needs products of 128 bits"
#endif

/* Numbers that are made at a time: they, and a table of 4,096, stay in the first cache. */
#define PART 512
/* Counts that are made at a time, of four numbers each. */
#define COUNTS 8
/* As inputs/curves.py has them. */
#define POWERS 12
#define LANES 8

/* Of Philox 4x64. */
#define ROUNDS 10
#define LEFT 0xD2E7470EE14C6C93u
#define RIGHT 0xCA5A826395121157u

typedef double quad __attribute__((vector_size(32), aligned(8), may_alias));
typedef double pair __attribute__((vector_size(16), aligned(8), may_alias));
typedef uint64_t bits __attribute__((vector_size(32), aligned(8), may_alias));
static const bits first_counts = {0, 1, 2, 3};
typedef int32_t four __attribute__((vector_size(16)));

/* A map of numbers in [0, 1]: t + t (1 - t) (p + q t), or a shift by a mean, a scale, and a shift to another mean,
 * within [0, 1]. */
typedef struct {
    double kind, first, second, third;
} map;
#define BEND 0

typedef struct {
    uint64_t keys[2 * ROUNDS], counter[4], place;
    const double *table;
    double cells;
    const map *maps;
    Py_ssize_t maps_count, start, count;
} drawing;

INLINE void count_on(uint64_t *counter, uint64_t by) {
    for (int word = 0; word < 4 && by; word++) {
        counter[word] += by;
        by = counter[word] < by;
    }
}

/* The four numbers of each of so many counts; keys are those of the rounds. */
INLINE void philox(uint64_t *out, Py_ssize_t counts, uint64_t *counter, const uint64_t *keys) {
    for (; counts--; out += 4, count_on(counter, 1)) {
        uint64_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
        for (int round = 0; round < ROUNDS; round++) {
            unsigned __int128 left = (unsigned __int128)LEFT * a, right = (unsigned __int128)RIGHT * c;
            a = (uint64_t)(right >> 64) ^ b ^ keys[2 * round];
            b = (uint64_t)right;
            c = (uint64_t)(left >> 64) ^ d ^ keys[2 * round + 1];
            d = (uint64_t)left;
        }
        out[0] = a;
        out[1] = b;
        out[2] = c;
        out[3] = d;
    }
}

#ifdef WIDE
#define INLINE_WIDE __attribute__((target(WIDE))) INLINE

/* The products of 64 bits of four numbers and one, by those of their halves. */
INLINE_WIDE void products(bits *high, bits *low, bits numbers, uint64_t one) {
    const __m256i whole = (__m256i)numbers, upper = (__m256i)(numbers >> 32);
    const __m256i first = _mm256_set1_epi64x((int64_t)one), second = _mm256_set1_epi64x((int64_t)(one >> 32));
    bits both = (bits)_mm256_mul_epu32(whole, first);
    bits one_side = (bits)_mm256_mul_epu32(whole, second) + (both >> 32);
    bits other_side = (bits)_mm256_mul_epu32(upper, first) + (one_side & 0xffffffff);
    *high = (bits)_mm256_mul_epu32(upper, second) + (one_side >> 32) + (other_side >> 32);
    *low = (bits)_mm256_blend_epi32((__m256i)both, (__m256i)(other_side << 32), 0xAA);
}

INLINE_WIDE void one_round(bits *words, const uint64_t *keys) {
    bits left_high, left_low, right_high, right_low;
    products(&left_high, &left_low, words[0], LEFT);
    products(&right_high, &right_low, words[2], RIGHT);
    words[0] = right_high ^ words[1] ^ keys[0];
    words[1] = right_low;
    words[2] = left_high ^ words[3] ^ keys[1];
    words[3] = left_low;
}

/* The words of four counts, one count after the other. */
INLINE_WIDE void put_counts(uint64_t *out, const bits *words) {
    for (int half = 0; half < 2; half++) {
        const __m256i first = (__m256i)words[2 * half], second = (__m256i)words[2 * half + 1];
        const __m256i even = _mm256_unpacklo_epi64(first, second), odd = _mm256_unpackhi_epi64(first, second);
        _mm_storeu_si128((__m128i *)(out + 2 * half), _mm256_castsi256_si128(even));
        _mm_storeu_si128((__m128i *)(out + 4 + 2 * half), _mm256_castsi256_si128(odd));
        _mm_storeu_si128((__m128i *)(out + 8 + 2 * half), _mm256_extracti128_si256(even, 1));
        _mm_storeu_si128((__m128i *)(out + 12 + 2 * half), _mm256_extracti128_si256(odd, 1));
    }
}

/* The same of COUNTS at a time, whose lowest words do not begin anew. */
__attribute__((target(WIDE))) static void wide_philox(uint64_t *out, Py_ssize_t counts, const uint64_t *counter,
                                                      const uint64_t *keys) {
    for (Py_ssize_t done = 0; done < counts; done += COUNTS) {
        bits words[2][4];
        for (int half = 0; half < 2; half++)
            for (int word = 0; word < 4; word++) words[half][word] = (bits){0} + counter[word];
        words[0][0] += first_counts + (uint64_t)done;
        words[1][0] += first_counts + (uint64_t)(done + 4);
#pragma GCC unroll 1
        for (int round = 0; round < ROUNDS; round++)
            for (int half = 0; half < 2; half++) one_round(words[half], keys + 2 * round);
        for (int half = 0; half < 2; half++) put_counts(out + 4 * (done + 4 * half), words[half]);
    }
}
#endif

/* Numbers in [0, 1) by their first 53 bits, exactly, without an instruction that not every CPU has: the upper and the
 * lower half each stand behind a power of two, which is taken away. */
INLINE void uniform(quad *numbers, const uint64_t *given) {
    const double powers = 0x1p84 + 0x1p52;
    const bits words = *(const bits *)given;
    bits upper = (words >> 43) | 0x4530000000000000, lower = (words >> 11 & 0xffffffff) | 0x4330000000000000;
    *numbers = (((quad)upper - powers) + (quad)lower) * 0x1p-53;
}

/* Numbers of the table's law in place of uniform ones, of which bits are given: of PART at most. */
INLINE void interpolated(double *out, const uint64_t *given, Py_ssize_t count, const double *table, double cells) {
    int32_t cell[PART];
    for (Py_ssize_t index = 0; index < count; index += 4) {
        quad place;
        uniform(&place, given + index);
        place *= cells;
        four whole = __builtin_convertvector(place, four);
        memcpy(cell + index, &whole, sizeof whole);
        *(quad *)(out + index) = place - __builtin_convertvector(whole, quad);
    }
    for (Py_ssize_t index = 0; index < count; index += 2) {
        pair first = *(const pair *)(table + cell[index]), second = *(const pair *)(table + cell[index + 1]);
        pair below = {first[0], second[0]}, above = {first[1], second[1]};
        *(pair *)(out + index) = *(pair *)(out + index) * (above - below) + below;
    }
}

INLINE void mapped(double *values, Py_ssize_t count, const map *one) {
    const double first = one->first, second = one->second, third = one->third;
    if (one->kind == BEND) {
        for (Py_ssize_t index = 0; index < count; index++) {
            double value = values[index];
            values[index] = value + (value * second + first) * ((1 - value) * value);
        }
    } else {
        for (Py_ssize_t index = 0; index < count; index++) {
            double value = (values[index] - first) * second + third;
            value = value > 0.0 ? value : 0.0;
            values[index] = value < 1.0 ? value : 1.0;
        }
    }
}

/* How many of the numbers from one on are made at a time: each time but the first it begins with a count. */
INLINE Py_ssize_t taken_at_once(const drawing *all, Py_ssize_t done) {
    Py_ssize_t most = PART - (Py_ssize_t)((all->place + (uint64_t)(all->start + done)) % 4);
    return all->count - done < most ? all->count - done : most;
}

/* The bits of so many numbers, those before them having been done, and of those that share their counts: how many of
 * these come first. */
INLINE Py_ssize_t bits_of(uint64_t *given, const drawing *all, Py_ssize_t done, Py_ssize_t count, int is_wide) {
    uint64_t first = all->place + (uint64_t)(all->start + done), counter[4];
    memcpy(counter, all->counter, sizeof counter);
    count_on(counter, first / 4);
    const Py_ssize_t skipped = (Py_ssize_t)(first % 4), counts = (skipped + count + 3) / 4;
#ifdef WIDE
    if (is_wide && counter[0] < UINT64_MAX - PART)
        wide_philox(given, counts, counter, all->keys);
    else
#endif
        philox(given, counts, counter, all->keys);
    (void)is_wide;
    return skipped;
}

/* So many numbers of the curve, those before them having been done. They begin within out, which has room for PART. */
INLINE const double *drawn(double *out, const drawing *all, Py_ssize_t done, Py_ssize_t count, int is_wide) {
    uint64_t given[PART];
    const Py_ssize_t skipped = bits_of(given, all, done, count, is_wide), made = (skipped + count + 3) / 4 * 4;
    interpolated(out, given, made, all->table, all->cells);
    for (Py_ssize_t index = 0; index < all->maps_count; index++) mapped(out, made, all->maps + index);
    return out + skipped;
}

INLINE void all_uniform(double *out, const drawing *all, int is_wide) {
    for (Py_ssize_t done = 0, count; done < all->count; done += count) {
        uint64_t given[PART];
        double numbers[PART];
        count = taken_at_once(all, done);
        const Py_ssize_t skipped = bits_of(given, all, done, count, is_wide);
        for (Py_ssize_t index = 0; index < skipped + count; index += 4)
            uniform((quad *)(numbers + index), given + index);
        memcpy(out + done, numbers + skipped, (size_t)count * sizeof *out);
    }
}

/* Which uniform numbers are below a share, of which each is a whole number of 2**-53. */
INLINE void all_below(char *out, double share, const drawing *all, int is_wide) {
    const int64_t limit = (int64_t)ceil(share * 0x1p53);
    for (Py_ssize_t done = 0, count; done < all->count; done += count) {
        uint64_t given[PART];
        count = taken_at_once(all, done);
        const Py_ssize_t skipped = bits_of(given, all, done, count, is_wide);
        for (Py_ssize_t index = 0; index < count; index++)
            out[done + index] = (char)((int64_t)(given[skipped + index] >> 11) < limit);
    }
}

INLINE void all_of_curve(double *out, const drawing *all, int is_wide) {
    double room[PART];
    for (Py_ssize_t done = 0, count; done < all->count; done += count) {
        count = taken_at_once(all, done);
        memcpy(out + done, drawn(room, all, done, count, is_wide), (size_t)count * sizeof *out);
    }
}

typedef struct {
    double least, low, high;
    char *out;
    enum dtype dtype;
} range;

#define WRITE(TYPE, CAST)                                                                                              \
    for (Py_ssize_t index = 0; index < count; index++) {                                                               \
        double value = values[index] < to->least ? 0.0 : values[index], moved = value * span + low;                    \
        moved = moved < high ? moved : high;                                                                           \
        ((TYPE *)(void *)to->out)[first + index] = (TYPE)CAST(value == 1.0 ? high : moved);                            \
    }

INLINE void all_stretched(const range *to, const drawing *all, int is_wide) {
    double room[PART];
    const double low = to->low, high = to->high, span = high - low;
    for (Py_ssize_t first = 0, count; first < all->count; first += count) {
        count = taken_at_once(all, first);
        const double *values = drawn(room, all, first, count, is_wide);
        switch (to->dtype) {
        case BFLOAT16: WRITE(uint16_t, to_bfloat16) break;
        case FLOAT32: WRITE(float, ) break;
        default: WRITE(double, ) break;
        }
    }
}

/* Values that move by a roundoff, each times (1 + size xi) or, inward, towards zero, within a range. */
typedef struct {
    const char *values;
    enum dtype from, to;
    double size, low, high;
    int inward;
    char *out;
} movement;

#define PUT(TYPE, CAST)                                                                                                \
    for (Py_ssize_t index = 0; index < count; index++)                                                                 \
        ((TYPE *)(void *)by->out)[done + index] = (TYPE)CAST(numbers[index]);

INLINE void all_moved(const movement *by, const drawing *all, int is_wide) {
    const double root = sqrt(3.0), size = by->size, low = by->low, high = by->high;
    for (Py_ssize_t done = 0, count; done < all->count; done += count) {
        uint64_t given[PART];
        double room[PART], values[PART];
        count = taken_at_once(all, done);
        const Py_ssize_t skipped = bits_of(given, all, done, count, is_wide);
        for (Py_ssize_t index = 0; index < skipped + count; index += 4)
            uniform((quad *)(room + index), given + index);
        double *numbers = room + skipped;
        widened(values, by->values, by->from, done, count);
        if (by->inward) {
            for (Py_ssize_t index = 0; index < count; index++)
                numbers[index] = values[index] * (1.0 - size * fabs((numbers[index] * 2 - 1) * root));
        } else {
            for (Py_ssize_t index = 0; index < count; index++) {
                double value = ((numbers[index] * 2 - 1) * root * size + 1) * values[index];
                value = value > low ? value : low;
                numbers[index] = value < high ? value : high;
            }
        }
        switch (by->to) {
        case BFLOAT16: PUT(uint16_t, to_bfloat16) break;
        case FLOAT32: PUT(float, ) break;
        default: PUT(double, ) break;
        }
    }
}

/* Eight sums, as NumPy adds them up. */
INLINE double sum_of(const double *lanes) {
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/* The sums of four powers of at most PAIRWISE numbers, in the order in which NumPy adds so many up; powers has the
 * first of the four, and then the one after them. */
INLINE void four_sums(double *sums, const double *values, double *powers, Py_ssize_t count) {
    const Py_ssize_t even = count - count % LANES;
    quad added[4][2] = {{{0}}};
    for (Py_ssize_t index = 0; index < even; index += LANES) {
        quad one = *(const quad *)(values + index), other = *(const quad *)(values + index + 4);
        quad raised = *(const quad *)(powers + index), raised_too = *(const quad *)(powers + index + 4);
        for (int power = 0; power < 4; power++) {
            added[power][0] += raised;
            added[power][1] += raised_too;
            raised *= one;
            raised_too *= other;
        }
        *(quad *)(powers + index) = raised;
        *(quad *)(powers + index + 4) = raised_too;
    }
    for (int power = 0; power < 4; power++) {
        double lanes[LANES];
        memcpy(lanes, added[power], sizeof lanes);
        sums[power] = sum_of(lanes);
    }
    for (Py_ssize_t index = even; index < count; index++)
        for (int power = 0; power < 4; power++) {
            sums[power] += powers[index];
            powers[index] *= values[index];
        }
}

INLINE void sums_of_few(double *sums, const double *values, double *powers, Py_ssize_t count) {
    memcpy(powers, values, (size_t)count * sizeof *powers);
    for (int power = 0; power < POWERS; power += 4) four_sums(sums + power, values, powers, count);
}

/* Of a block, which NumPy halves until few are left. */
static void sums_of_block(double *sums, const double *values, Py_ssize_t count,
                          void (*few)(double *, const double *, double *, Py_ssize_t)) {
    if (count <= PAIRWISE) {
        double powers[PAIRWISE];
        few(sums, values, powers, count);
        return;
    }
    Py_ssize_t half = count / 2 - count / 2 % LANES;
    double right[POWERS];
    sums_of_block(sums, values, half, few);
    sums_of_block(right, values + half, count - half, few);
    for (int power = 0; power < POWERS; power++) sums[power] += right[power];
}

typedef struct {
    void (*curve)(double *, const drawing *);
    void (*stretched)(const range *, const drawing *);
    void (*uniform)(double *, const drawing *);
    void (*moved)(const movement *, const drawing *);
    void (*below)(char *, double, const drawing *);
    void (*few)(double *, const double *, double *, Py_ssize_t);
} way;

#define WAY(NAME, ATTRIBUTES, IS_WIDE)                                                                                 \
    ATTRIBUTES static void NAME##_curve(double *out, const drawing *all) { all_of_curve(out, all, IS_WIDE); }          \
    ATTRIBUTES static void NAME##_stretched(const range *to, const drawing *all) { all_stretched(to, all, IS_WIDE); }  \
    ATTRIBUTES static void NAME##_uniform(double *out, const drawing *all) { all_uniform(out, all, IS_WIDE); }         \
    ATTRIBUTES static void NAME##_moved(const movement *by, const drawing *all) { all_moved(by, all, IS_WIDE); }       \
    ATTRIBUTES static void NAME##_below(char *out, double share, const drawing *all) {                                 \
        all_below(out, share, all, IS_WIDE);                                                                           \
    }                                                                                                                  \
    ATTRIBUTES static void NAME##_few(double *sums, const double *values, double *powers, Py_ssize_t count) {          \
        sums_of_few(sums, values, powers, count);                                                                      \
    }                                                                                                                  \
    static const way NAME = {NAME##_curve, NAME##_stretched, NAME##_uniform, NAME##_moved, NAME##_below, NAME##_few};

WAY(baseline, , 0)
#ifdef WIDE
WAY(wide, __attribute__((target(WIDE))), 1)
#endif

static const way *chosen(void) {
#ifdef WIDE
    if (has_wide()) return &wide;
#endif
    return &baseline;
}

#define DRAWING "KKdKnnn"

static int taken(drawing *all, unsigned long long stream, unsigned long long table, unsigned long long maps) {
    const uint64_t *words = (const uint64_t *)(uintptr_t)stream;
    if (!stream || !table || (!maps && all->maps_count) || all->cells < 1 || all->start < 0 || all->count < 0) {
        PyErr_SetString(PyExc_ValueError, "give addresses, a table of a cell at least, and numbers from 0 on");
        return 0;
    }
    for (int round = 0; round < ROUNDS; round++) {
        all->keys[2 * round] = words[0] + (uint64_t)round * 0x9E3779B97F4A7C15u;
        all->keys[2 * round + 1] = words[1] + (uint64_t)round * 0xBB67AE8584CAA73Bu;
    }
    memcpy(all->counter, words + 2, sizeof all->counter);
    all->place = words[6];
    all->table = (const double *)(uintptr_t)table;
    all->maps = (const map *)(uintptr_t)maps;
    return 1;
}

static int is_written(int dtype) {
    if (dtype == BFLOAT16 || dtype == FLOAT32 || dtype == FLOAT64) return 1;
    PyErr_SetString(PyExc_ValueError, "give the number of a dtype that numbers are written in");
    return 0;
}

PyObject *curve(PyObject *module, PyObject *given) {
    (void)module;
    drawing all;
    unsigned long long stream, table, maps, out;
    if (!PyArg_ParseTuple(given, DRAWING "K", &stream, &table, &all.cells, &maps, &all.maps_count, &all.start,
                          &all.count, &out) ||
        !taken(&all, stream, table, maps))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    chosen()->curve((double *)(uintptr_t)out, &all);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyObject *stretched(PyObject *module, PyObject *given) {
    (void)module;
    drawing all;
    range to;
    int dtype;
    unsigned long long stream, table, maps, out;
    if (!PyArg_ParseTuple(given, DRAWING "Kdddi", &stream, &table, &all.cells, &maps, &all.maps_count, &all.start,
                          &all.count, &out, &to.least, &to.low, &to.high, &dtype) ||
        !taken(&all, stream, table, maps) || !is_written(dtype))
        return NULL;
    to.out = (char *)(uintptr_t)out;
    to.dtype = (enum dtype)dtype;
    Py_BEGIN_ALLOW_THREADS
    chosen()->stretched(&to, &all);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyObject *power_sums(PyObject *module, PyObject *given) {
    (void)module;
    drawing all;
    unsigned long long stream, table, maps, out;
    if (!PyArg_ParseTuple(given, DRAWING "K", &stream, &table, &all.cells, &maps, &all.maps_count, &all.start,
                          &all.count, &out) ||
        !taken(&all, stream, table, maps))
        return NULL;
    double *sums = (double *)(uintptr_t)out;
    Py_BEGIN_ALLOW_THREADS
    double values[BLOCK];
    drawing part = all;
    for (Py_ssize_t made = 0; made < all.count; made += BLOCK, sums += POWERS) {
        part.start = all.start + made;
        part.count = all.count - made < BLOCK ? all.count - made : BLOCK;
        chosen()->curve(values, &part);
        sums_of_block(sums, values, part.count, chosen()->few);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* What needs no table. */
static const double no_table[2];

PyObject *uniforms(PyObject *module, PyObject *given) {
    (void)module;
    drawing all = {.cells = 1, .maps_count = 0};
    unsigned long long stream, out;
    if (!PyArg_ParseTuple(given, "KnnK", &stream, &all.start, &all.count, &out) ||
        !taken(&all, stream, (uintptr_t)no_table, 0))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    chosen()->uniform((double *)(uintptr_t)out, &all);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyObject *moved(PyObject *module, PyObject *given) {
    (void)module;
    drawing all = {.cells = 1, .maps_count = 0};
    movement by;
    unsigned long long stream, values, out;
    int from, to;
    if (!PyArg_ParseTuple(given, "KnnKidddpKi", &stream, &all.start, &all.count, &values, &from, &by.size, &by.low,
                          &by.high, &by.inward, &out, &to) ||
        !taken(&all, stream, (uintptr_t)no_table, 0) || !is_written(to))
        return NULL;
    if (!values || from < 0 || from > FLOAT64) {
        PyErr_SetString(PyExc_ValueError, "give an address of values, and their dtype's number");
        return NULL;
    }
    by.values = (const char *)(uintptr_t)values;
    by.out = (char *)(uintptr_t)out;
    by.from = (enum dtype)from;
    by.to = (enum dtype)to;
    Py_BEGIN_ALLOW_THREADS
    chosen()->moved(&by, &all);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyObject *below(PyObject *module, PyObject *given) {
    (void)module;
    drawing all = {.cells = 1, .maps_count = 0};
    double share;
    unsigned long long stream, out;
    if (!PyArg_ParseTuple(given, "KdnnK", &stream, &share, &all.start, &all.count, &out) ||
        !taken(&all, stream, (uintptr_t)no_table, 0))
        return NULL;
    if (!(share >= 0 && share <= 1)) {
        PyErr_SetString(PyExc_ValueError, "give a share from 0 to 1");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    chosen()->below((char *)(uintptr_t)out, share, &all);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
