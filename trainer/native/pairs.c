/* Pairwise dot products of the vectors of a sample on CPUs, and their gradients.
 *
 * A batch's products are thousands of small ones, [vectors, dim] by its transpose. Libraries compute the whole
 * square of each, twice what is needed, after a copy of the vectors and before another of the result. Here a
 * sample's vectors are in the first level of cache from the first to the last operation.
 *
 * bottom:   row `sample` begins at sample * bottom_stride; the first vector
 * tables:   vector f of a sample begins at sample * table_stride + f * dim; always floats
 * ranks:    of each vector, bottom's first, its position in the canonical order
 * products: row `sample` begins at sample * stride: bottom, the products of vectors of the ranks (0, 1), (0, 2)
 *           ... (1, 2) ..., and zeros up to `width`
 *
 * With `half`, bottom, the products and the gradients of both are bfloat16 in memory, and the tables' vectors are
 * rounded to it, as torch's operations round them. Sums are floats.
 *
 * Samples do not depend on each other: a kernel does a part of them (share.h).
 */
#include "share.h"
#include <stdlib.h>
#include <string.h>

#define LINE 64 /* bytes of the cache */
#define QUAD 4
#ifdef __AVX512F__
#define LANES 16
#define EVEN 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30
#define ODD 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31
#elif defined(__AVX__)
#define LANES 8
#define EVEN 0, 2, 8, 10, 4, 6, 12, 14
#define ODD 1, 3, 9, 11, 5, 7, 13, 15
#else
#define LANES 4
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#endif
#ifdef __clang__
#define pick(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define pick(a, b, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));
typedef float quad __attribute__((vector_size(QUAD * sizeof(float)), aligned(sizeof(float))));
typedef int32_t places __attribute__((vector_size(LANES * sizeof(int32_t))));

struct pairs {
    const void *bottom, *gradient; /* gradient: of the products */
    const float *tables;
    const int32_t *ranks;
    void *products, *bottom_gradient;
    float *table_gradient; /* [batch, tables, dim] */
    int64_t count, dim, width, half; /* count: vectors of a sample */
    int64_t bottom_stride, table_stride, stride;
};

/* What a part needs for one sample. */
struct scratch {
    float *vectors; /* [tall, wide], zeros behind the vectors and their ends */
    float *square;  /* [tall, tall] */
    int64_t tall, wide;
};

static float widened(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t rounded(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fc0; /* not a number */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to the nearest, ties to even */
}

static void read_row(float *to, const void *from, int64_t first, int64_t count, int64_t half)
{
    if (!half)
        memcpy(to, (const float *)from + first, count * sizeof(float));
    else
        for (int64_t at = 0; at < count; at++)
            to[at] = widened(((const uint16_t *)from)[first + at]);
}

static void write_row(void *to, int64_t first, const float *from, int64_t count, int64_t half)
{
    if (!half)
        memcpy((float *)to + first, from, count * sizeof(float));
    else
        for (int64_t at = 0; at < count; at++)
            ((uint16_t *)to)[first + at] = rounded(from[at]);
}

static int64_t up(int64_t size, int64_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static float *numbers(int64_t count)
{
    return aligned_alloc(LINE, up(count * sizeof(float), LINE));
}

static int make_scratch(struct scratch *made, int64_t count, int64_t dim)
{
    made->tall = up(count, QUAD);
    made->wide = up(dim, 2 * LANES);
    const int64_t vectors = made->tall * made->wide, square = made->tall * made->tall;
    made->vectors = numbers(vectors);
    made->square = numbers(square);
    if (!made->vectors || !made->square)
        return 0;
    memset(made->vectors, 0, vectors * sizeof(float));
    memset(made->square, 0, square * sizeof(float));
    return 1;
}

static void free_scratch(struct scratch *made)
{
    free(made->vectors);
    free(made->square);
}

/* The compiler may not make calls of memcpy of these copies, nor read memory again for each product. */
#ifdef __x86_64__
#define HOLD(value) __asm__("" : "+x"(value))
#else
#define HOLD(value) (void)(value)
#endif

static inline lanes load(const float *from)
{
    lanes value = *(const lanes *)from;
    HOLD(value);
    return value;
}

static inline void copy(float *to, const float *from, int64_t count)
{
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES)
        *(lanes *)(to + at) = load(from + at);
    for (; at < count; at++) {
        float value = from[at];
        HOLD(value);
        to[at] = value;
    }
}

/* Vectors are in the order of their ranks. */
static void read_vectors(const struct pairs *all, int64_t sample, const struct scratch *own)
{
    const float *from = all->tables + sample * all->table_stride;
    const int64_t dim = all->dim;
    read_row(own->vectors + all->ranks[0] * own->wide, all->bottom, sample * all->bottom_stride, dim, all->half);
    for (int64_t vector = 1; vector < all->count; vector++, from += dim) {
        float *to = own->vectors + all->ranks[vector] * own->wide;
        copy(to, from, dim);
        for (int64_t d = 0; d < dim; d += LINE / sizeof(float))
            __builtin_prefetch(from + all->table_stride + d, 0, 3); /* past the end, it does nothing */
        for (int64_t d = 0; all->half && d < dim; d++)
            to[d] = widened(rounded(to[d]));
    }
}

/* Sums of neighbours: of four lanes in a register's part, [a, a, b, b]. */
static inline lanes halved(lanes a, lanes b)
{
    return pick(a, b, EVEN) + pick(a, b, ODD);
}

/* The sums of four registers' lanes. */
static inline quad summed(lanes a, lanes b, lanes c, lanes d)
{
    const lanes parts = halved(halved(a, b), halved(c, d));
    quad all[LANES / QUAD];
    memcpy(all, &parts, sizeof all);
    for (int width = LANES / QUAD / 2; width; width /= 2)
        for (int part = 0; part < width; part++)
            all[part] += all[part + width];
    return all[0];
}

/* The square's entries above the diagonal. */
static void multiply(const struct scratch *own)
{
    const int64_t tall = own->tall, wide = own->wide;
    for (int64_t high = 0; high < tall; high += QUAD)
        for (int64_t low = 0; low < high + QUAD; low += 2) {
            const float *a = own->vectors + high * wide, *b = a + wide, *c = b + wide, *d = c + wide;
            const float *first = own->vectors + low * wide, *second = first + wide;
            lanes a_first = {0}, b_first = {0}, c_first = {0}, d_first = {0};
            lanes a_second = {0}, b_second = {0}, c_second = {0}, d_second = {0};
            for (int64_t at = 0; at < wide; at += LANES) {
                const lanes f = load(first + at), s = load(second + at);
                lanes v = load(a + at);
                a_first += v * f;
                a_second += v * s;
                v = load(b + at);
                b_first += v * f;
                b_second += v * s;
                v = load(c + at);
                c_first += v * f;
                c_second += v * s;
                v = load(d + at);
                d_first += v * f;
                d_second += v * s;
            }
            float *to = own->square + low * tall + high;
            *(quad *)to = summed(a_first, b_first, c_first, d_first);
            *(quad *)(to + tall) = summed(a_second, b_second, c_second, d_second);
        }
}

/* The entries of the diagonal's tiles below it, from those above it. The diagonal itself stays 0. */
static void mirror(const struct scratch *own)
{
    const int64_t tall = own->tall;
    for (int64_t first = 0; first < tall; first += QUAD)
        for (int64_t low = first; low < first + QUAD; low++)
            for (int64_t high = low + 1; high < first + QUAD; high++)
                own->square[high * tall + low] = own->square[low * tall + high];
}

struct tile {
    lanes near[QUAD], far[QUAD];
};

/* sums += factors x vectors, for the vectors of `others`; a factor of the next row of the tile is `apart` from it,
 * one of the next vector `next`. */
static inline void add(struct tile *sums, const float *factors, int64_t apart, int64_t next, const float *vector,
                       int64_t wide, int64_t others)
{
    struct tile own = *sums;
    for (; others; others--, vector += wide, factors += next) {
        const lanes near = load(vector), far = load(vector + LANES);
        for (int row = 0; row < QUAD; row++) {
            own.near[row] += factors[row * apart] * near;
            own.far[row] += factors[row * apart] * far;
        }
    }
    *sums = own;
}

/* rows = square x vectors, by the square's entries above the diagonal and in its tiles */
static void spread(const struct scratch *own, int64_t count, float *const *rows)
{
    const int64_t tall = own->tall, wide = own->wide;
    for (int64_t first = 0; first < tall; first += QUAD)
        for (int64_t at = 0; at < wide; at += 2 * LANES) {
            struct tile sums = {{{0}}, {{0}}};
            const float *vectors = own->vectors + at;
            add(&sums, own->square + first, 1, tall, vectors, wide, first);
            add(&sums, own->square + first * tall + first, tall, 1, vectors + first * wide, wide, count - first);
            for (int row = 0; row < QUAD; row++) {
                *(lanes *)(rows[first + row] + at) = sums.near[row];
                *(lanes *)(rows[first + row] + at + LANES) = sums.far[row];
            }
        }
}

int64_t pairs_forward(const void *job, int64_t first_sample, int64_t last_sample)
{
    const struct pairs *all = job;
    const int64_t count = all->count, dim = all->dim;
    struct scratch own;
    float *own_row = malloc(all->width * sizeof(float));
    int64_t result = NO_MEMORY;
    if (!make_scratch(&own, count, dim) || !own_row)
        goto done;
    for (int64_t sample = first_sample; sample < last_sample; sample++) {
        read_vectors(all, sample, &own);
        multiply(&own);
        float *row = all->half ? own_row : (float *)all->products + sample * all->stride;
        float *to = row + dim;
        copy(row, own.vectors + all->ranks[0] * own.wide, dim);
        for (int64_t low = 0; low < count - 1; to += count - ++low)
            copy(to, own.square + low * own.tall + low + 1, count - low - 1);
        memset(to, 0, (row + all->width - to) * sizeof(float));
        if (all->half)
            write_row(all->products, sample * all->stride, row, all->width, 1);
    }
    result = DONE;
done:
    free_scratch(&own);
    free(own_row);
    return result;
}

int64_t pairs_backward(const void *job, int64_t first_sample, int64_t last_sample)
{
    const struct pairs *all = job;
    const int64_t count = all->count, dim = all->dim, used = dim + count * (count - 1) / 2;
    struct scratch own;
    float *own_row = malloc(used * sizeof(float));
    float *gradients = NULL, **rows = NULL;
    int64_t result = NO_MEMORY;
    if (make_scratch(&own, count, dim)) {
        gradients = numbers(own.tall * own.wide);
        rows = malloc(own.tall * sizeof(float *));
    }
    if (!gradients || !rows || !own_row)
        goto done;
    for (int64_t vector = 0; vector < own.tall; vector++)
        rows[vector] = gradients + vector * own.wide;
    for (int64_t sample = first_sample; sample < last_sample; sample++) {
        read_vectors(all, sample, &own);
        const float *row = own_row;
        if (all->half)
            read_row(own_row, all->gradient, sample * all->stride, used, 1);
        else
            row = (const float *)all->gradient + sample * all->stride;
        const float *from = row + dim;
        for (int64_t low = 0; low < count - 1; from += count - ++low)
            copy(own.square + low * own.tall + low + 1, from, count - low - 1);
        mirror(&own);
        float *to = all->table_gradient + sample * (count - 1) * dim;
        for (int64_t vector = 1; vector < count && own.wide == dim; vector++)
            rows[all->ranks[vector]] = to + (vector - 1) * dim; /* no ends to leave out */
        spread(&own, count, rows);
        const float *of_bottom = gradients + all->ranks[0] * own.wide;
        for (int64_t d = 0; d < dim; d++)
            own_row[d] = row[d] + of_bottom[d];
        write_row(all->bottom_gradient, sample * dim, own_row, dim, all->half);
        for (int64_t vector = 1; vector < count && own.wide != dim; vector++, to += dim)
            copy(to, gradients + all->ranks[vector] * own.wide, dim);
    }
    result = DONE;
done:
    free_scratch(&own);
    free(gradients);
    free(rows);
    free(own_row);
    return result;
}
