/* Look-up and fused update of embedding rows on CPUs.
 *
 * A step touches tens of thousands of rows, each somewhere else in gigabytes: what counts is that
 * the next rows are on their way from memory while one is worked on, that a row is visited once,
 * and that gradients are read where autograd left them, in their order. Equal ids of a step are found by a small
 * hash table a feature, their gradients summed in the order of samples, so results do not depend
 * on the number of threads.
 *
 * ids:     feature by feature, sample by sample; offsets [features * batch + 1] cut them into bags
 * weights: [rows of all tables, dim]; first_rows[feature] is where a feature's table begins
 * out, gradient: row `sample` begins at sample * stride, feature f's columns at f * dim
 *
 * Both kernels do a part of the work (share.h): look_up some samples, update some features. A part with an
 * id that its table does not have has changed nothing.
 */
#include "share.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD 24   /* rows on their way, to the second level: the first has room for few */
#define LINE 16    /* floats in a cache line */
#define LANES 16   /* partial sums: the order of additions is fixed, whatever the vector width */

enum kind { SGD, ADAGRAD, ROWWISE_ADAGRAD, ADAM, PARTIAL_ROWWISE_ADAM };

static inline void fetch(const float *row, int64_t dim, int write)
{
    for (int64_t d = 0; d < dim; d += LINE) {
        if (write)
            __builtin_prefetch(row + d, 1, 2);
        else
            __builtin_prefetch(row + d, 0, 2);
    }
}

struct look_up {
    const float *weights;
    const int64_t *ids, *offsets, *first_rows, *rows;
    float *out;
    int64_t features, batch, dim, stride;
};

int64_t look_up(const void *job, int64_t first_sample, int64_t last_sample)
{
    const struct look_up *all = job;
    const float *weights = all->weights;
    const int64_t *ids = all->ids, *offsets = all->offsets, *first_rows = all->first_rows, *rows = all->rows;
    const int64_t features = all->features, batch = all->batch, dim = all->dim;
    for (int64_t feature = 0; feature < features; feature++)
        for (int64_t at = offsets[feature * batch + first_sample]; at < offsets[feature * batch + last_sample]; at++)
            if ((uint64_t)ids[at] >= (uint64_t)rows[feature])
                return at;
    for (int64_t sample = first_sample; sample < last_sample; sample++) {
        float *row_out = all->out + sample * all->stride;
        for (int64_t feature = 0; feature < features; feature++, row_out += dim) {
            int64_t ahead = feature + AHEAD, later = sample;
            if (ahead >= features) {
                ahead -= features;
                later++;
            }
            if (later < last_sample && ahead < features) {
                int64_t at = offsets[ahead * batch + later];
                if (at < offsets[ahead * batch + later + 1])
                    fetch(weights + (first_rows[ahead] + ids[at]) * dim, dim, 0);
            }
            int64_t begin = offsets[feature * batch + sample], end = offsets[feature * batch + sample + 1];
            if (begin == end) {
                memset(row_out, 0, sizeof(float) * dim);
                continue;
            }
            memcpy(row_out, weights + (first_rows[feature] + ids[begin]) * dim, sizeof(float) * dim);
            for (int64_t at = begin + 1; at < end; at++) {
                const float *row = weights + (first_rows[feature] + ids[at]) * dim;
                for (int64_t d = 0; d < dim; d++)
                    row_out[d] += row[d];
            }
        }
    }
    return DONE;
}

struct visit {
    int64_t row;
    const float *gradient; /* of the first sample with this id */
    int64_t more;          /* position of the next sample with it, or -1 */
};

struct rule {
    int64_t kind;
    float rate, eps, first_correction, second_correction;
};

struct update {
    float *weights, *first_state, *second_state;
    const int64_t *ids, *offsets, *first_rows, *rows;
    const float *gradient;
    int64_t first_width, second_width; /* of a row's state; 0 for none */
    int64_t batch, dim, stride;
    struct rule rule;
};

/* The rests are not computed: 1 - 0.999f is 5e-5 off. */
static const float FIRST_BETA = 0.9f, FIRST_REST = 0.1f, SECOND_BETA = 0.999f, SECOND_REST = 0.001f;

static float mean_square(const float *gradient, int64_t dim)
{
    float lanes[LANES] = {0};
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES)
        for (int64_t lane = 0; lane < LANES; lane++)
            lanes[lane] += gradient[d + lane] * gradient[d + lane];
    for (int64_t lane = 0; d < dim; d++, lane++)
        lanes[lane] += gradient[d] * gradient[d];
    for (int64_t width = LANES / 2; width; width /= 2)
        for (int64_t lane = 0; lane < width; lane++)
            lanes[lane] += lanes[lane + width];
    return lanes[0] / (float)dim;
}

static void update_row(const struct rule *rule, float *restrict weight, float *restrict first,
                       float *restrict second, const float *restrict gradient, int64_t dim)
{
    const float rate = rule->rate, eps = rule->eps;
    switch (rule->kind) {
    case SGD:
        for (int64_t d = 0; d < dim; d++)
            weight[d] -= rate * gradient[d];
        break;
    case ADAGRAD:
        for (int64_t d = 0; d < dim; d++) {
            first[d] += gradient[d] * gradient[d];
            weight[d] -= rate * gradient[d] / (sqrtf(first[d]) + eps);
        }
        break;
    case ROWWISE_ADAGRAD: {
        *first += mean_square(gradient, dim);
        const float factor = rate / (sqrtf(*first) + eps);
        for (int64_t d = 0; d < dim; d++)
            weight[d] -= factor * gradient[d];
        break;
    }
    case ADAM:
        for (int64_t d = 0; d < dim; d++) {
            first[d] = FIRST_BETA * first[d] + FIRST_REST * gradient[d];
            second[d] = SECOND_BETA * second[d] + SECOND_REST * gradient[d] * gradient[d];
            weight[d] -= rate * (first[d] / rule->first_correction)
                         / (sqrtf(second[d] / rule->second_correction) + eps);
        }
        break;
    default: { /* PARTIAL_ROWWISE_ADAM */
        *second = SECOND_BETA * *second + SECOND_REST * mean_square(gradient, dim);
        const float factor = rate / rule->first_correction / (sqrtf(*second / rule->second_correction) + eps);
        for (int64_t d = 0; d < dim; d++) {
            first[d] = FIRST_BETA * first[d] + FIRST_REST * gradient[d];
            weight[d] -= factor * first[d];
        }
    }
    }
}

/* Chain the positions of equal ids of one feature, in their order: more[p] is the next one's position
 * or -1; those that follow another are marked in `follows`. The hash table holds the last position. */
static void chain(const int64_t *ids, int64_t begin, int64_t end, int64_t *slots, int64_t mask, int64_t *more,
                  uint8_t *follows)
{
    memset(slots, 0xff, sizeof(int64_t) * (mask + 1));
    for (int64_t at = begin; at < end; at++) {
        uint64_t slot = ((uint64_t)ids[at] * 0x9E3779B97F4A7C15ull >> 32) & mask;
        while (slots[slot] >= 0 && ids[slots[slot]] != ids[at])
            slot = (slot + 1) & mask;
        follows[at] = slots[slot] >= 0;
        if (follows[at])
            more[slots[slot]] = at;
        more[at] = -1;
        slots[slot] = at;
    }
}

static int64_t widest(const int64_t *offsets, int64_t first_feature, int64_t last_feature, int64_t batch)
{
    int64_t most = 0;
    for (int64_t feature = first_feature; feature < last_feature; feature++) {
        int64_t count = offsets[(feature + 1) * batch] - offsets[feature * batch];
        most = count > most ? count : most;
    }
    return most;
}

int64_t update(const void *job, int64_t first_feature, int64_t last_feature)
{
    const struct update *all = job;
    float *weights = all->weights, *first_state = all->first_state, *second_state = all->second_state;
    const int64_t *ids = all->ids, *offsets = all->offsets, *first_rows = all->first_rows, *rows = all->rows;
    const float *gradient = all->gradient;
    const int64_t first_width = all->first_width, second_width = all->second_width;
    const int64_t batch = all->batch, dim = all->dim, stride = all->stride;
    const int64_t base = offsets[first_feature * batch], count = offsets[last_feature * batch] - base;
    for (int64_t feature = first_feature; feature < last_feature; feature++)
        for (int64_t at = offsets[feature * batch]; at < offsets[(feature + 1) * batch]; at++)
            if ((uint64_t)ids[at] >= (uint64_t)rows[feature])
                return at;
    int64_t mask = 2;
    while (mask < 2 * widest(offsets, first_feature, last_feature, batch))
        mask *= 2;
    mask--;
    int64_t *slots = malloc(sizeof(int64_t) * (mask + 1));
    int64_t *more = malloc(sizeof(int64_t) * (count + 1));
    int64_t *samples = malloc(sizeof(int64_t) * (count + 1)); /* of each position */
    uint8_t *follows = malloc(count + 1);
    struct visit *visits = malloc(sizeof(struct visit) * (count + 1));
    float *sum = malloc(sizeof(float) * dim);
    int64_t result = NO_MEMORY, made = 0;
    if (!slots || !more || !samples || !follows || !visits || !sum)
        goto done;
    for (int64_t feature = first_feature; feature < last_feature; feature++)
        chain(ids, offsets[feature * batch], offsets[(feature + 1) * batch], slots, mask, more - base, follows - base);
    for (int64_t sample = 0; sample < batch; sample++) /* as gradients lie in memory */
        for (int64_t feature = first_feature; feature < last_feature; feature++)
            for (int64_t at = offsets[feature * batch + sample]; at < offsets[feature * batch + sample + 1]; at++) {
                samples[at - base] = sample;
                if (follows[at - base])
                    continue;
                visits[made].row = first_rows[feature] + ids[at];
                visits[made].gradient = gradient + sample * stride + feature * dim;
                visits[made++].more = more[at - base];
            }
    for (int64_t index = 0; index < made; index++) {
        if (index + AHEAD < made) {
            const int64_t row = visits[index + AHEAD].row;
            fetch(weights + row * dim, dim, 1);
            if (first_width)
                fetch(first_state + row * first_width, first_width, 1);
            if (second_width)
                fetch(second_state + row * second_width, second_width, 1);
        }
        const struct visit *visit = &visits[index];
        const float *total = visit->gradient;
        if (visit->more >= 0) {
            const int64_t column = (visit->gradient - gradient) % stride;
            memcpy(sum, visit->gradient, sizeof(float) * dim);
            for (int64_t at = visit->more; at >= 0; at = more[at - base]) {
                const float *other = gradient + samples[at - base] * stride + column;
                for (int64_t d = 0; d < dim; d++)
                    sum[d] += other[d];
            }
            total = sum;
        }
        update_row(&all->rule, weights + visit->row * dim, first_state + visit->row * first_width,
                   second_state + visit->row * second_width, total, dim);
    }
    result = DONE;
done:
    free(slots);
    free(more);
    free(samples);
    free(follows);
    free(visits);
    free(sum);
    return result;
}
