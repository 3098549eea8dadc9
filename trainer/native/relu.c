/* The gradient before a ReLU on CPUs, and its sum over samples, which is the gradient of the layer's bias.
 *
 * As torch's operations, these are two passes over activations that the caches of a core do not hold. Here a
 * value is summed while it is in a register.
 *
 * gradient, output, result: row `sample` begins at sample * its stride; output is the ReLU's. The result may be
 *                           the gradient itself
 * sums: [tiles, columns]; row t is the sum of the results of samples from t * TILE, in their order, so that
 *       the sum does not depend on the number of threads
 *
 * With `half`, the gradient, the output and the result are bfloat16 in memory. Sums are floats.
 *
 * The kernel does some tiles (share.h).
 */
#include "share.h"
#include <string.h>

#define TILE 64 /* samples; relu.py has the same number */

/* A result that is the gradient itself is at the same place, so that no value is read after it has changed. */
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

struct relu {
    const void *gradient, *output;
    void *result;
    float *sums;
    int64_t samples, columns, half;
    int64_t gradient_stride, output_stride, result_stride;
};

static float widened(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void of_floats(const struct relu *all, int64_t sample, float *restrict sum)
{
    const float *gradient = (const float *)all->gradient + sample * all->gradient_stride;
    const float *output = (const float *)all->output + sample * all->output_stride;
    float *result = (float *)all->result + sample * all->result_stride;
    const int64_t columns = all->columns;
    INDEPENDENT
    for (int64_t column = 0; column < columns; column++) {
        const float value = output[column] <= 0 ? 0 : gradient[column]; /* as torch: it stays if the output is NaN */
        result[column] = value;
        sum[column] += value;
    }
}

static void of_halves(const struct relu *all, int64_t sample, float *restrict sum)
{
    const uint16_t *gradient = (const uint16_t *)all->gradient + sample * all->gradient_stride;
    const uint16_t *output = (const uint16_t *)all->output + sample * all->output_stride;
    uint16_t *result = (uint16_t *)all->result + sample * all->result_stride;
    const int64_t columns = all->columns;
    INDEPENDENT
    for (int64_t column = 0; column < columns; column++) {
        const uint16_t bits = output[column];
        const uint16_t is_above = (uint16_t)(bits - 1) < 0x7fff, is_odd = bits > 0xff80; /* a negative NaN */
        const uint16_t value = gradient[column] & -(is_above | is_odd);
        result[column] = value;
        sum[column] += widened(value);
    }
}

int64_t relu_backward(const void *job, int64_t first_tile, int64_t last_tile)
{
    const struct relu *all = job;
    for (int64_t tile = first_tile; tile < last_tile; tile++) {
        const int64_t begin = tile * TILE, rest = all->samples - begin, end = begin + (rest < TILE ? rest : TILE);
        float *sum = all->sums + tile * all->columns;
        memset(sum, 0, all->columns * sizeof(float));
        for (int64_t sample = begin; sample < end; sample++) {
            if (all->half)
                of_halves(all, sample, sum);
            else
                of_floats(all, sample, sum);
        }
    }
    return DONE;
}
