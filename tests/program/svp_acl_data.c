/*
 * The made-up library's streams, memory, datasets, data buffers and descriptions. A model may say what its inputs and
 * outputs are; `svp_acl_mdl_execute` refuses datasets of another shape, and writes each input's bytes, turned over
 * (255 - byte), to the output of the same index.
 *
 *     input NAME BYTES STRIDE
 *     output NAME BYTES STRIDE
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "svp_acl_tensors.h"

enum { SUCCESS = 0, INVALID_PARAM = 100000, INPUT_NOT_MATCH = 100017, OUTPUT_NOT_MATCH = 100018, MAX_BUFFERS = 16 };

typedef struct {
    void *data;
    size_t size, stride;
} data_buffer;

typedef struct {
    size_t count;
    data_buffer *buffer[MAX_BUFFERS];
} dataset;

typedef struct {
    const tensors *of;
} desc;

typedef struct {
    char name[128];
    size_t count;
    int64_t each[128];
} dimensions;

static int living; /* what was made and not freed */

static void *made(size_t size)
{
    living++;
    return calloc(1, size);
}

static int freed(const void *it)
{
    if (it == NULL) return INVALID_PARAM;
    living--;
    free((void *)it);
    return SUCCESS;
}

int fake_living(void)
{
    return living;
}

/* ---- streams and memory ---- */

int svp_acl_rt_create_stream(void **stream)
{
    *stream = made(1);
    return SUCCESS;
}

int svp_acl_rt_synchronize_stream(void *stream)
{
    return stream == NULL ? INVALID_PARAM : SUCCESS;
}

int svp_acl_rt_destroy_stream(void *stream)
{
    return freed(stream);
}

int svp_acl_rt_get_run_mode(int *mode)
{
    *mode = 0;
    return SUCCESS;
}

int svp_acl_rt_malloc(void **memory, size_t size, int policy)
{
    if (size == 0 || policy < 0 || policy > 2) return INVALID_PARAM;
    *memory = made(size);
    return SUCCESS;
}

int svp_acl_rt_free(const void *memory)
{
    return freed(memory);
}

/* ---- data buffers and datasets ---- */

data_buffer *svp_acl_create_data_buffer(void *data, size_t size, size_t stride)
{
    data_buffer *buffer = made(sizeof *buffer);
    *buffer = (data_buffer){data, size, stride};
    return buffer;
}

int svp_acl_destroy_data_buffer(const data_buffer *buffer)
{
    return freed(buffer);
}

int svp_acl_update_data_buffer(data_buffer *buffer, void *data, size_t size, size_t stride)
{
    if (buffer == NULL || stride == 0) return INVALID_PARAM;
    *buffer = (data_buffer){data, size, stride};
    return SUCCESS;
}

void *svp_acl_get_data_buffer_addr(const data_buffer *buffer)
{
    return buffer->data;
}

size_t svp_acl_get_data_buffer_size(const data_buffer *buffer)
{
    return buffer->size;
}

size_t svp_acl_get_data_buffer_stride(const data_buffer *buffer)
{
    return buffer->stride;
}

dataset *svp_acl_mdl_create_dataset(void)
{
    return made(sizeof(dataset));
}

int svp_acl_mdl_destroy_dataset(const dataset *set)
{
    return freed(set);
}

int svp_acl_mdl_add_dataset_buffer(dataset *set, data_buffer *buffer)
{
    if (set == NULL || buffer == NULL || set->count == MAX_BUFFERS) return INVALID_PARAM;
    set->buffer[set->count++] = buffer;
    return SUCCESS;
}

size_t svp_acl_mdl_get_dataset_num_buffers(const dataset *set)
{
    return set->count;
}

data_buffer *svp_acl_mdl_get_dataset_buffer(const dataset *set, size_t index)
{
    return index < set->count ? set->buffer[index] : NULL;
}

static int fits(const tensors *wanted, const dataset *set)
{
    if (wanted->count == 0) return 1; /* the model does not say */
    if (set == NULL || set->count != wanted->count) return 0;
    for (size_t each = 0; each < set->count; each++) {
        const data_buffer *is = set->buffer[each];
        const tensor *of = &wanted->each[each];
        if (is->data == NULL || is->size < of->size || is->stride != of->stride) return 0;
    }
    return 1;
}

int fake_run(const tensors *inputs, const tensors *outputs, const void *ins, const void *outs)
{
    const dataset *input = ins, *output = outs;
    if (!fits(inputs, input)) return INPUT_NOT_MATCH;
    if (!fits(outputs, output)) return OUTPUT_NOT_MATCH;
    for (size_t each = 0; each < inputs->count && each < outputs->count; each++) {
        const unsigned char *from = input->buffer[each]->data;
        unsigned char *to = output->buffer[each]->data;
        for (size_t at = 0; at < inputs->each[each].size && at < outputs->each[each].size; at++)
            to[at] = (unsigned char)(255 - from[at]);
    }
    return SUCCESS;
}

/* ---- descriptions ---- */

desc *svp_acl_mdl_create_desc(void)
{
    return made(sizeof(desc));
}

int svp_acl_mdl_destroy_desc(desc *of)
{
    return freed(of);
}

int svp_acl_mdl_get_desc(desc *into, uint32_t model_id)
{
    into->of = fake_tensors(model_id);
    return into->of == NULL ? INVALID_PARAM : SUCCESS;
}

static const tensor *tensor_at(const desc *of, int is_output, size_t index)
{
    const tensors *all = &of->of[is_output];
    return index < all->count ? &all->each[index] : NULL;
}

static int dimensions_at(const desc *of, int is_output, size_t index, dimensions *into)
{
    const tensor *found = tensor_at(of, is_output, index);
    if (found == NULL) return INVALID_PARAM;
    strcpy(into->name, found->name);
    into->count = 2;
    into->each[0] = (int64_t)(found->size / found->stride), into->each[1] = (int64_t)found->stride;
    return SUCCESS;
}

static int index_of(const desc *of, int is_output, const char *name, size_t *index)
{
    for (*index = 0; *index < of->of[is_output].count; ++*index)
        if (strcmp(of->of[is_output].each[*index].name, name) == 0) return SUCCESS;
    return INVALID_PARAM;
}

#define OF_EACH_SIDE(side, is_output)                                                                                  \
    size_t svp_acl_mdl_get_num_##side##s(const desc *of)                                                               \
    {                                                                                                                  \
        return of->of[is_output].count;                                                                                \
    }                                                                                                                  \
    size_t svp_acl_mdl_get_##side##_size_by_index(const desc *of, size_t index)                                        \
    {                                                                                                                  \
        return tensor_at(of, is_output, index) == NULL ? 0 : tensor_at(of, is_output, index)->size;                    \
    }                                                                                                                  \
    size_t svp_acl_mdl_get_##side##_default_stride(const desc *of, size_t index)                                       \
    {                                                                                                                  \
        return tensor_at(of, is_output, index) == NULL ? 0 : tensor_at(of, is_output, index)->stride;                  \
    }                                                                                                                  \
    const char *svp_acl_mdl_get_##side##_name_by_index(const desc *of, size_t index)                                   \
    {                                                                                                                  \
        return tensor_at(of, is_output, index) == NULL ? NULL : tensor_at(of, is_output, index)->name;                 \
    }                                                                                                                  \
    int svp_acl_mdl_get_##side##_dims(const desc *of, size_t index, dimensions *into)                                  \
    {                                                                                                                  \
        return dimensions_at(of, is_output, index, into);                                                              \
    }                                                                                                                  \
    int svp_acl_mdl_get_##side##_index_by_name(const desc *of, const char *name, size_t *index)                        \
    {                                                                                                                  \
        return index_of(of, is_output, name, index);                                                                   \
    }

OF_EACH_SIDE(input, 0)
OF_EACH_SIDE(output, 1)
