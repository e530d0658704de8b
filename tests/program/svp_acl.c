/*
 * A made-up libsvp_acl.so for tests: the functions of the public headers that profagent_app calls, with the
 * state machine, the return codes and the files of the real library (docs/reference/program.md). No line of it is
 * the vendor's. A "model" is text, one directive a line:
 *
 *     name NAME
 *     layer TYPE NAME TICKS        one layer on the NPU
 *     input NAME BYTES STRIDE      and output: svp_acl_data.c has datasets
 *
 * Functions that begin with fake_ set up what a device would do, and look inside.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "svp_acl_tensors.h"

enum {
    SUCCESS = 0,
    INVALID_PARAM = 100000,
    UNINITIALIZE = 100001,
    REPEAT_INITIALIZE = 100002,
    INVALID_PROFILING_CONFIG = 100010,
    REPEAT_FINALIZE = 100037,
    PROF_ALREADY_RUN = 100042,
    PROF_API_CONFLICT = 148047,
    INTERNAL_ERROR = 500000
};
enum { MODE_OFF = 0, MODE_API = 2, MODE_SUBSCRIBE = 3, MODE_JSON = 4 };
enum { CHANNEL_AICORE = 1, CHANNEL_AICPU = 2, CHANNEL_ACL_API = 4 };
enum { MAX_LAYERS = 64, MAX_MODELS = 64, MAX_PATH = 4096, RECORD = 256, RING = 512, MHZ = 700 };
enum { ID_LOAD = 0, ID_UNLOAD = 1, ID_EXECUTE = 2 };

typedef struct {
    char type[64], name[64];
    uint32_t ticks;
} layer;

typedef struct {
    uint32_t magic, api;
    uint64_t begin, end;
    uint32_t pid, tid;
} call_record;

typedef struct {
    int loaded, recorded, first, since_sample, subscribed;
    char name[256];
    int layers;
    layer layer[MAX_LAYERS];
    tensors io[2];
    uint64_t pictures, load_begin;
    int calls, call_bytes;
    call_record call[RING];
} model;

typedef struct {
    uint64_t mask;
} prof_config;

typedef struct {
    const int *fd;
} subscribe_config;

static struct {
    int initialized, mode, is_init, started, channels, interval, subscribers;
    int refuses_start, busy, pictures;
    const int *fd;
    char job[MAX_PATH + 64];
    model models[MAX_MODELS];
} rt = {.pictures = 1};

static uint64_t now_us(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_usec;
}

/* ---- files of a JOB ---- */

static FILE *job_file(const char *name, const char *how)
{
    char path[MAX_PATH + 1024];
    snprintf(path, sizeof path, "%s/%s", rt.job, name);
    return fopen(path, how);
}

static int make_job(const char *output)
{
    char parent[PATH_MAX], path[MAX_PATH + 128];
    unsigned char random[29 * 4];
    uint32_t word;
    struct stat is;
    if (realpath(output, parent) == NULL || stat(parent, &is) != 0 || !S_ISDIR(is.st_mode)) {
        if (getcwd(parent, sizeof parent) == NULL) return -1;
    }
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, random, sizeof random) != (ssize_t)sizeof random) return -1;
    close(fd);
    int length = snprintf(rt.job, sizeof rt.job, "%.4000s/JOB", parent);
    for (int each = 0; each < 29; each++) {
        memcpy(&word, random + 4 * each, sizeof word);
        rt.job[length++] = (char)('A' + word % 26);
    }
    rt.job[length] = 0;
    snprintf(path, sizeof path, "%s/data", rt.job);
    if (mkdir(rt.job, 0755) != 0 || mkdir(path, 0755) != 0) {
        rt.job[0] = 0;
        return -1;
    }
    return 0;
}

static void write_info(void)
{
    FILE *file = job_file("info.json.0", "w");
    if (file == NULL) return;
    fprintf(file, "{\"DeviceInfo\": [{\"aic_frequency\": \"%d\"}]}", MHZ);
    fclose(file);
}

static void item(FILE *file, uint16_t tag, const void *value, size_t size)
{
    fwrite(&tag, sizeof tag, 1, file);
    if ((tag & 0xE000) == 0x8000) fputc((int)size, file);
    if ((tag & 0xE000) == 0xC000) {
        uint32_t length = (uint32_t)size;
        fwrite(&length, sizeof length, 1, file);
    }
    fwrite(value, 1, size, file);
}

static void write_tables(const model *of, int id)
{
    char name[512];
    snprintf(name, sizeof name, "data/%s.%d.layer.info", of->name, id);
    FILE *file = job_file(name, "w");
    if (file == NULL) return;
    for (uint16_t each = 0; each < of->layers; each++) {
        char *bytes = NULL;
        size_t size = 0;
        FILE *nested = open_memstream(&bytes, &size);
        const layer *is = &of->layer[each];
        item(nested, 0x4112, &each, sizeof each);
        item(nested, 0x8114, is->name, strlen(is->name) + 1);
        item(nested, 0x8152, is->type, strlen(is->type) + 1);
        item(nested, 0x4157, &each, sizeof each);
        item(nested, 0x414B, "\0", 2);
        fclose(nested);
        item(file, 0xC111, bytes, size);
        free(bytes);
    }
    fclose(file);
    snprintf(name, sizeof name, "data/%s.%d.net.info", of->name, id);
    file = job_file(name, "w");
    if (file == NULL) return;
    uint16_t zero = 0, count = (uint16_t)of->layers;
    item(file, 0x4041, &zero, sizeof zero);
    item(file, 0x4042, &zero, sizeof zero);
    item(file, 0x420C, &count, sizeof count);
    item(file, 0x420D, &zero, sizeof zero);
    fclose(file);
}

static void log_call(model *of, uint32_t api, uint64_t begin)
{
    if (!of->recorded || !rt.started || !(rt.channels & CHANNEL_ACL_API)) return;
    call_record *call = &of->call[of->calls % RING];
    *call = (call_record){0x5A5A, api, begin, now_us(), (uint32_t)getpid(), (uint32_t)syscall(SYS_gettid)};
    of->calls++;
}

static void flush_calls(model *of, int id)
{
    char name[512];
    int lost = of->calls > RING - 1 ? of->calls - (RING - 1) : 0;
    snprintf(name, sizeof name, "data/acl_api.0.%s.%d", of->name, id);
    FILE *file = job_file(name, "ab");
    if (file == NULL) return;
    for (int each = lost; each < of->calls; each++) {
        fwrite(&of->call[each % RING], sizeof(call_record), 1, file);
        of->call_bytes += (int)sizeof(call_record);
    }
    of->calls = 0;
    fclose(file);
}

static void write_sample(model *of, int id, uint64_t begin, uint64_t end)
{
    char name[512], done[520];
    uint32_t words[RECORD / 4];
    snprintf(name, sizeof name, "data/aicore.0.%s.0.%d.1.%d.%llu", of->name, id, rt.pictures,
             (unsigned long long)of->pictures);
    FILE *file = job_file(name, "ab");
    if (file == NULL) return;
    for (int each = 0; each < of->layers; each++) {
        memset(words, 0, sizeof words);
        words[0] = (uint32_t)each;
        words[1] = of->layer[each].ticks;
        fwrite(words, sizeof words, 1, file);
    }
    fclose(file);
    snprintf(done, sizeof done, "%s.done", name);
    file = job_file(done, "w");
    if (file == NULL) return;
    fprintf(file, "file_len:%d\nstart_time:%llu\nend_time:%llu\ncache_hit:900\ncache_mis:100\n", of->layers * RECORD,
            (unsigned long long)begin, (unsigned long long)end);
    fclose(file);
}

/* ---- the descriptors of a subscription ---- */

static void describe(const model *of, int id, uint64_t start)
{
    unsigned char bytes[RECORD];
    for (int each = 0; each < of->layers; each++) {
        const layer *is = &of->layer[each];
        uint32_t sequence = (uint32_t)each, model_id = (uint32_t)id;
        uint32_t type_length = (uint32_t)strlen(is->type), name_length = (uint32_t)strlen(is->name);
        uint64_t duration = (uint32_t)(is->ticks * 100u) / MHZ, end = start + duration;
        if (name_length > 32 || type_length > 32) return; /* so does the real one */
        memset(bytes, 0xEE, sizeof bytes);
        memcpy(bytes, &sequence, 4);
        memcpy(bytes + 4, &is->ticks, 4);
        memcpy(bytes + 0x74, &model_id, 4);
        memcpy(bytes + 0x78, &type_length, 4);
        memcpy(bytes + 0x7C, &name_length, 4);
        memcpy(bytes + 0x98, &start, 8);
        memcpy(bytes + 0xA8, &end, 8);
        memcpy(bytes + 0xB0, &duration, 8);
        memcpy(bytes + 0xB8, is->type, type_length);
        memcpy(bytes + 0xD8, is->name, name_length);
        if (write(*rt.fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes) return;
        start = end;
    }
}

/* ---- acl.json ---- */

typedef struct {
    const char *at;
    int depth, bad, in_profiler, found;
    char seen[6][MAX_PATH + 1]; /* switch output aic_metrics aicpu acl_api interval */
    int has[6];
} parser;

static const char *const KEYS[6] = {"switch", "output", "aic_metrics", "aicpu", "acl_api", "interval"};

static void blank(parser *p)
{
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r' || *p->at == '\n') p->at++;
}

static void text(parser *p, char *into, size_t size)
{
    size_t length = 0;
    for (p->at++; *p->at != 0 && *p->at != '"'; p->at++) {
        if (*p->at == '\\' && p->at[1] != 0) p->at++;
        if (length + 1 < size) into[length++] = *p->at;
    }
    into[length] = 0;
    if (*p->at == '"') p->at++;
    else p->bad = 1;
}

static void value(parser *p, const char *key);

static void object(parser *p, const char *of)
{
    char key[256];
    int outer = p->in_profiler;
    p->in_profiler = p->depth == 1 && strcmp(of, "profiler") == 0;
    p->found |= p->in_profiler;
    p->depth++;
    for (p->at++; !p->bad;) {
        blank(p);
        if (*p->at == ',') {
            p->at++;
            continue;
        }
        if (*p->at == '}') break;
        if (*p->at != '"') {
            p->bad = 1;
            return;
        }
        text(p, key, sizeof key);
        blank(p);
        if (*p->at++ != ':') p->bad = 1;
        else value(p, key);
    }
    if (*p->at == '}') p->at++;
    p->depth--;
    p->in_profiler = outer;
}

static void value(parser *p, const char *key)
{
    char content[MAX_PATH + 1];
    blank(p);
    if (*p->at == '{') object(p, key);
    else if (*p->at == '[') {
        for (p->at++; !p->bad && *p->at != ']';) {
            blank(p);
            if (*p->at == ',') p->at++;
            else if (*p->at != ']') value(p, "");
        }
        if (*p->at == ']') p->at++;
    } else if (*p->at == '"') {
        text(p, content, sizeof content);
        for (int each = 0; p->in_profiler && each < 6; each++) {
            if (strcmp(key, KEYS[each]) == 0) {
                strcpy(p->seen[each], content);
                p->has[each] = 1;
            }
        }
    } else p->bad = 1; /* a number, a bool: every value must be a string */
}

static int interval_of(const char *written)
{
    char *end;
    long number = strtol(written, &end, 10);
    return *written == 0 || *end != 0 || number < 0 || number > 9999 ? -1 : (int)number;
}

static void apply(const parser *p)
{
    int channels = 0, interval = p->has[5] ? interval_of(p->seen[5]) : 0;
    if (strcmp(p->seen[2], "ArithmeticUtilization") == 0) channels |= CHANNEL_AICORE;
    if (strcmp(p->seen[3], "on") == 0) channels |= CHANNEL_AICPU;
    if (strcmp(p->seen[4], "on") == 0) channels |= CHANNEL_ACL_API;
    if (strcmp(p->seen[0], "on") != 0) {
        rt.mode = channels != 0 && interval >= 0 ? MODE_JSON : MODE_OFF;
        return;
    }
    if (!p->has[1]) *(volatile int *)0 = 1; /* the real one crashes here */
    if (channels == 0 || interval < 0 || make_job(p->seen[1]) != 0) return;
    write_info();
    rt.mode = MODE_JSON;
    rt.is_init = rt.started = 1;
    rt.channels = channels;
    rt.interval = interval;
}

static int read_config(const char *path)
{
    parser *p = calloc(1, sizeof *p);
    struct stat is;
    int code = INVALID_PARAM;
    FILE *file = fopen(path, "rb");
    if (file != NULL && fstat(fileno(file), &is) == 0 && is.st_size > 0 && is.st_size <= 10 << 20) {
        char *content = calloc(1, (size_t)is.st_size + 1);
        if (fread(content, 1, (size_t)is.st_size, file) == (size_t)is.st_size) {
            p->at = content;
            blank(p);
            if (*p->at == '{') object(p, "");
            else p->bad = 1;
            if (!p->bad && *content != 0) {
                if (p->found) apply(p);
                code = SUCCESS;
            }
        }
        free(content);
    }
    if (file != NULL) fclose(file);
    free(p);
    return code;
}

/* ---- public functions: init, models ---- */

int svp_acl_init(const char *path)
{
    if (rt.initialized) return REPEAT_INITIALIZE;
    int code = path == NULL ? SUCCESS : read_config(path);
    rt.initialized = code == SUCCESS;
    return code;
}

int svp_acl_finalize(void)
{
    if (!rt.initialized) return UNINITIALIZE;
    int refuses = rt.refuses_start, busy = rt.busy, pictures = rt.pictures;
    memset(&rt, 0, sizeof rt);
    rt.refuses_start = refuses, rt.busy = busy, rt.pictures = pictures;
    return SUCCESS;
}

int svp_acl_rt_set_device(int32_t device)
{
    return device == 0 ? SUCCESS : INVALID_PARAM;
}

int svp_acl_rt_reset_device(int32_t device)
{
    return device == 0 ? SUCCESS : INVALID_PARAM;
}

int svp_acl_rt_create_context(void **context, int32_t device)
{
    static int only;
    *context = &only;
    return device == 0 ? SUCCESS : INVALID_PARAM;
}

int svp_acl_rt_set_current_context(void *context)
{
    return context == NULL ? INVALID_PARAM : SUCCESS;
}

int svp_acl_rt_destroy_context(void *context)
{
    return context == NULL ? INVALID_PARAM : SUCCESS;
}

static int parse_model(model *into, const char *text_of, size_t size)
{
    char *copy = strndup(text_of, size), *rest = copy, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        layer *next = &into->layer[into->layers];
        if (sscanf(line, "name %255s", into->name) == 1) continue;
        if (into->layers < MAX_LAYERS && sscanf(line, "layer %63s %63s %u", next->type, next->name, &next->ticks) == 3)
            into->layers++;
        for (int side = 0; side < 2; side++) {
            tensor *io = &into->io[side].each[into->io[side].count];
            if (sscanf(line, side ? "output %63s %zu %zu" : "input %63s %zu %zu", io->name, &io->size, &io->stride) == 3)
                into->io[side].count++;
        }
    }
    free(copy);
    return into->name[0] != 0 && into->layers > 0 ? SUCCESS : INVALID_PARAM;
}

int svp_acl_mdl_load_from_mem(const void *bytes, size_t size, uint32_t *model_id)
{
    uint64_t begin = now_us();
    int id = 0;
    while (id < MAX_MODELS && rt.models[id].loaded) id++;
    if (!rt.initialized) return UNINITIALIZE;
    if (id == MAX_MODELS || bytes == NULL) return INVALID_PARAM;
    model *of = &rt.models[id];
    memset(of, 0, sizeof *of);
    if (parse_model(of, bytes, size) != SUCCESS) return INVALID_PARAM;
    of->loaded = of->first = 1;
    of->recorded = rt.is_init;
    if (of->recorded) write_tables(of, id);
    of->load_begin = rt.started ? begin : 0;
    log_call(of, ID_LOAD, begin);
    *model_id = (uint32_t)id;
    return SUCCESS;
}

const tensors *fake_tensors(uint32_t model_id)
{
    return model_id < MAX_MODELS && rt.models[model_id].loaded ? rt.models[model_id].io : NULL;
}

int svp_acl_mdl_execute(uint32_t model_id, const void *input, const void *output)
{
    if (model_id >= MAX_MODELS || !rt.models[model_id].loaded) return INVALID_PARAM;
    model *of = &rt.models[model_id];
    uint64_t begin = now_us(), lasts = 0;
    int code = fake_run(&of->io[0], &of->io[1], input, output);
    if (code != SUCCESS) return code;
    int due = of->first || (rt.interval > 0 && of->since_sample >= rt.interval && of->since_sample >= rt.busy);
    for (int each = 0; each < of->layers; each++) lasts += of->layer[each].ticks * 100u / MHZ;
    usleep((useconds_t)lasts);
    log_call(of, ID_EXECUTE, begin);
    if (due && rt.started && of->recorded && rt.channels & CHANNEL_AICORE) {
        write_sample(of, (int)model_id, begin, now_us());
        flush_calls(of, (int)model_id);
    }
    if (of->subscribed) describe(of, (int)model_id, begin);
    of->since_sample = due ? 1 : of->since_sample + 1;
    of->first = 0;
    of->pictures += (uint64_t)rt.pictures;
    return SUCCESS;
}

int svp_acl_mdl_execute_async(uint32_t model_id, const void *input, const void *output, void *stream)
{
    return stream == NULL ? INVALID_PARAM : svp_acl_mdl_execute(model_id, input, output);
}

int svp_acl_mdl_unload(uint32_t model_id)
{
    char name[512];
    uint64_t begin = now_us();
    if (model_id >= MAX_MODELS || !rt.models[model_id].loaded) return INVALID_PARAM;
    model *of = &rt.models[model_id];
    log_call(of, ID_UNLOAD, begin);
    if (rt.started && of->recorded && rt.channels & CHANNEL_ACL_API) {
        flush_calls(of, (int)model_id);
        snprintf(name, sizeof name, "data/acl_api.0.%s.%u.done", of->name, model_id);
        FILE *file = job_file(name, "w");
        if (file != NULL) {
            fprintf(file, "file_len:%d\nstart_time:%llu\nend_time:%llu\npid:%d\ntid:%ld\n", of->call_bytes,
                    (unsigned long long)of->load_begin, (unsigned long long)now_us(), getpid(), syscall(SYS_gettid));
            fclose(file);
        }
    }
    of->loaded = 0;
    return SUCCESS;
}

/* ---- public functions: profiling ---- */

int svp_acl_prof_init(const char *path, size_t length)
{
    char copy[MAX_PATH + 1];
    if (!rt.initialized) return UNINITIALIZE;
    if (path == NULL || length == 0 || length > MAX_PATH || strlen(path) != length) return INVALID_PARAM;
    if (rt.mode == MODE_JSON || rt.mode == MODE_SUBSCRIBE) return PROF_API_CONFLICT;
    if (rt.is_init) return REPEAT_INITIALIZE;
    memcpy(copy, path, length + 1);
    if (make_job(copy) != 0) return INVALID_PROFILING_CONFIG;
    rt.mode = MODE_API;
    rt.is_init = 1;
    return SUCCESS;
}

int svp_acl_prof_start(const prof_config *config)
{
    if (!rt.is_init || rt.mode != MODE_API) return UNINITIALIZE;
    if (config == NULL) return INVALID_PARAM;
    if (rt.started) return PROF_ALREADY_RUN;
    if (rt.refuses_start) return INTERNAL_ERROR;
    rt.channels = (config->mask & 1 ? CHANNEL_ACL_API : 0) | (config->mask & 6 ? CHANNEL_AICORE : 0) |
                  (config->mask & 8 ? CHANNEL_AICPU : 0);
    rt.interval = 1;
    rt.started = 1;
    write_info();
    return SUCCESS;
}

int svp_acl_prof_stop(const prof_config *config)
{
    if (!rt.is_init || rt.mode != MODE_API) return UNINITIALIZE;
    if (config == NULL) return INVALID_PARAM;
    if (!rt.started) return REPEAT_FINALIZE;
    rt.started = 0;
    return SUCCESS;
}

int svp_acl_prof_finalize(void)
{
    if (!rt.is_init || rt.mode != MODE_API) return UNINITIALIZE;
    if (rt.started) return INTERNAL_ERROR;
    rt.is_init = 0;
    rt.mode = MODE_OFF;
    rt.job[0] = 0;
    return SUCCESS;
}

prof_config *svp_acl_prof_create_config(const uint32_t *devices, uint32_t count, int metrics, const void *events,
                                        uint64_t mask)
{
    if (devices == NULL || count != 1 || devices[0] != 0 || metrics != 0 || events != NULL || mask < 1 || mask > 0xF)
        return NULL;
    prof_config *config = malloc(sizeof *config);
    config->mask = mask;
    return config;
}

int svp_acl_prof_destroy_config(const prof_config *config)
{
    if (config == NULL) return INVALID_PARAM;
    free((void *)config);
    return SUCCESS;
}

subscribe_config *svp_acl_prof_create_subscribe_config(int8_t time_info, int metrics, const void *fd)
{
    if ((time_info != 0 && time_info != 1) || metrics != 0 || fd == NULL) return NULL;
    subscribe_config *config = malloc(sizeof *config);
    config->fd = fd;
    return config;
}

int svp_acl_prof_destroy_subscribe_config(const subscribe_config *config)
{
    if (config == NULL) return INVALID_PARAM;
    free((void *)config);
    return SUCCESS;
}

int svp_acl_prof_model_subscribe(uint32_t model_id, const subscribe_config *config)
{
    if (!rt.initialized) return UNINITIALIZE;
    if (config == NULL || model_id >= MAX_MODELS) return INVALID_PARAM;
    if (rt.mode == MODE_JSON || rt.mode == MODE_API) return PROF_API_CONFLICT;
    rt.mode = MODE_SUBSCRIBE; /* stays so when what follows fails, as in the real one */
    if (!rt.models[model_id].loaded || rt.models[model_id].subscribed) return INVALID_PARAM;
    if (rt.subscribers > 0 && *config->fd != *rt.fd) return INVALID_PARAM;
    rt.fd = config->fd;
    rt.models[model_id].subscribed = 1;
    rt.subscribers++;
    return SUCCESS;
}

int svp_acl_prof_model_unsubscribe(uint32_t model_id)
{
    if (!rt.initialized) return UNINITIALIZE;
    if (model_id >= MAX_MODELS) return INVALID_PARAM;
    if (rt.mode != MODE_SUBSCRIBE || !rt.models[model_id].subscribed) return UNINITIALIZE;
    rt.models[model_id].subscribed = 0;
    if (--rt.subscribers == 0) rt.mode = MODE_OFF;
    return SUCCESS;
}

/* ---- public functions: what a descriptor says; quirks as the real one's ---- */

static const unsigned char *descriptor(const void *data, size_t size, uint32_t index)
{
    return data == NULL || index >= size / RECORD ? NULL : (const unsigned char *)data + (size_t)RECORD * index;
}

static uint32_t word(const unsigned char *at)
{
    uint32_t is;
    memcpy(&is, at, sizeof is);
    return is;
}

static uint64_t long_word(const void *data, size_t size, uint32_t index, size_t offset)
{
    const unsigned char *at = descriptor(data, size, index);
    uint64_t is;
    if (at == NULL) return INVALID_PARAM;
    memcpy(&is, at + offset, sizeof is);
    return is;
}

static int text_length(const void *data, size_t size, uint32_t index, size_t offset, size_t *length)
{
    const unsigned char *at = descriptor(data, size, index);
    if (at == NULL || length == NULL) return INVALID_PARAM;
    memcpy(length, at + offset, 4); /* 32 bits of the size_t only */
    return SUCCESS;
}

static int text_of(const void *data, size_t size, uint32_t index, size_t offset, size_t from, char *into, size_t room)
{
    const unsigned char *at = descriptor(data, size, index);
    if (at == NULL || into == NULL || room == 0) return INVALID_PARAM;
    uint32_t length = word(at + offset);
    if (length >= 32) return INVALID_PARAM;
    if (room < length) return INTERNAL_ERROR;
    memcpy(into, at + from, length); /* no NUL is added */
    return SUCCESS;
}

int svp_acl_prof_get_op_desc_size(size_t *size)
{
    uint32_t is = RECORD;
    if (size == NULL) return INVALID_PARAM;
    memcpy(size, &is, sizeof is);
    return SUCCESS;
}

int svp_acl_prof_get_op_num(const void *data, size_t size, uint32_t *number)
{
    if (data == NULL || number == NULL) return INVALID_PARAM;
    *number = (uint32_t)(size / RECORD);
    return SUCCESS;
}

int svp_acl_prof_get_op_type_len(const void *data, size_t size, uint32_t index, size_t *length)
{
    return text_length(data, size, index, 0x78, length);
}

int svp_acl_prof_get_op_name_len(const void *data, size_t size, uint32_t index, size_t *length)
{
    return text_length(data, size, index, 0x7C, length);
}

int svp_acl_prof_get_op_type(const void *data, size_t size, uint32_t index, char *into, size_t room)
{
    return text_of(data, size, index, 0x78, 0xB8, into, room);
}

int svp_acl_prof_get_op_name(const void *data, size_t size, uint32_t index, char *into, size_t room)
{
    return text_of(data, size, index, 0x7C, 0xD8, into, room);
}

uint64_t svp_acl_prof_get_op_start(const void *data, size_t size, uint32_t index)
{
    return long_word(data, size, index, 0x98);
}

uint64_t svp_acl_prof_get_op_end(const void *data, size_t size, uint32_t index)
{
    return long_word(data, size, index, 0xA8);
}

uint64_t svp_acl_prof_get_op_duration(const void *data, size_t size, uint32_t index)
{
    return long_word(data, size, index, 0xB0);
}

size_t svp_acl_prof_get_model_id(const void *data, size_t size, uint32_t index)
{
    const unsigned char *at = descriptor(data, size, index);
    return at == NULL ? INVALID_PARAM : word(at + 0x74);
}

/* ---- for tests ---- */

int fake_work_mode(void)
{
    return rt.mode;
}

int fake_is_init(void)
{
    return rt.is_init;
}

int fake_interval(void)
{
    return rt.interval;
}

int fake_channels(void)
{
    return rt.channels;
}

void fake_refuse_start(int refuses)
{
    rt.refuses_start = refuses;
}

void fake_stay_busy(int inferences)
{
    rt.busy = inferences;
}

void fake_pictures(int pictures)
{
    rt.pictures = pictures;
}

void fake_set_interval(int interval)
{
    rt.interval = interval;
}
