/* A stand-in for the driver of CUDA: as strict as the real one where partgrid could be wrong, and without a GPU.
 *
 * Comes in: the calls that partgrid makes. Goes out: memory that faults when the host touches it, errors for calls without the context of their device, and what tests ask for
 * (`stand_in_...`). Copies to the device are staged, as those of pageable memory are, until somebody waits for the stream. One kernel may be on its way, that of tests/gpu/driver.py, which writes when
 * somebody waits for an event. Never here: kernels that run.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_CONTEXT = 201, NOT_READY = 600, BLOCKS = 4096, STAGED = 4096 };

typedef struct { char *place; size_t bytes, pages; int device; } Block;
typedef struct { char *place, *bytes; size_t count; } Copy;

static Block blocks[BLOCKS];
static Copy staged[STAGED];
static struct { uint64_t place, value, count; } late;
static int num_staged, num_waited;
static uintptr_t last_event;
static size_t held;
static char contexts[8];
static _Thread_local char *current;

static int setting(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static int device_of(void) { return current ? (int)(current - contexts) : -1; }

static Block *block_of(uintptr_t place) {
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].place && place >= (uintptr_t)blocks[i].place && place < (uintptr_t)blocks[i].place + blocks[i].bytes)
            return &blocks[i];
    return NULL;
}

static void rights(Block *block, int wanted) { mprotect(block->place, block->pages, wanted); }

static void settle(void) {
    for (int i = 0; i < num_staged; i++) {
        Block *block = block_of((uintptr_t)staged[i].place);
        if (block) {
            rights(block, PROT_READ | PROT_WRITE);
            memcpy(staged[i].place, staged[i].bytes, staged[i].count);
            rights(block, PROT_NONE);
        }
        free(staged[i].bytes);
    }
    num_staged = 0;
}

/* The block, when all of it is there and the context is that of its device. */
static int checked(uint64_t place, size_t bytes, Block **found) {
    Block *block = block_of(place);
    if (!block || place + bytes > (uintptr_t)block->place + block->bytes) return INVALID;
    if (block->device != device_of()) return INVALID_CONTEXT;
    *found = block;
    return OK;
}

int cuInit(unsigned flags) { (void)flags; return setting("STAND_IN_DEVICES", 2) ? setting("STAND_IN_STARTS", OK) : NO_DEVICE; }
int cuDeviceGetCount(int *count) { *count = setting("STAND_IN_DEVICES", 2); return OK; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return OK; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { (void)attribute; (void)device; *value = 1; return OK; }
int cuDevicePrimaryCtxRetain(char **context, int device) { *context = contexts + device; return OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return OK; }
int cuCtxGetCurrent(char **context) { *context = current; return OK; }
int cuCtxGetDevice(int *device) { *device = device_of(); return current ? OK : INVALID_CONTEXT; }
int cuCtxSetCurrent(char *context) { current = context; return OK; }
int cuGetErrorName(int error, const char **text) { (void)error; *text = "NAME"; return OK; }
int cuGetErrorString(int error, const char **text) { *text = error == OUT_OF_MEMORY ? "out of memory" : "some error"; return OK; }

int cuMemAlloc_v2(uint64_t *place, size_t bytes) {
    if (!current) return INVALID_CONTEXT;
    if (!bytes) return INVALID;
    if (held + bytes > (size_t)setting("STAND_IN_BYTES", 1 << 30)) return OUT_OF_MEMORY;
    for (int i = 0; i < BLOCKS; i++)
        if (!blocks[i].place) {
            size_t pages = (bytes + 4095) / 4096 * 4096;
            blocks[i] = (Block){mmap(NULL, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), bytes, pages, device_of()};
            held += bytes;
            *place = (uintptr_t)blocks[i].place;
            return OK;
        }
    return OUT_OF_MEMORY;
}

int cuMemFree_v2(uint64_t place) {
    Block *block;
    int code = checked(place, 0, &block);
    if (code) return code;
    settle();
    held -= block->bytes;
    munmap(block->place, block->pages);
    block->place = NULL;
    return OK;
}

int cuMemcpyHtoD_v2(uint64_t place, const void *bytes, size_t count) {
    Block *block;
    int code = checked(place, count, &block);
    if (code) return code;
    if (num_staged == STAGED) settle();
    char *copy = malloc(count);
    memcpy(copy, bytes, count);
    staged[num_staged++] = (Copy){(char *)(uintptr_t)place, copy, count};
    return OK;
}

int cuMemcpyDtoH_v2(void *out, uint64_t place, size_t count) {
    Block *block;
    int code = checked(place, count, &block);
    if (code) return code;
    settle();
    rights(block, PROT_READ);
    memcpy(out, (void *)(uintptr_t)place, count);
    rights(block, PROT_NONE);
    return OK;
}

/* On its way until somebody waits for the stream, and in order with the copies. */
int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t count) {
    Block *block, *source;
    int code = checked(from, count, &source);
    if (!code) code = checked(to, count, &block);
    if (code) return code;
    if (from < to + count && to < from + count) return INVALID;
    settle();
    char *copy = malloc(count);
    rights(source, PROT_READ);
    memcpy(copy, (void *)(uintptr_t)from, count);
    rights(source, PROT_NONE);
    staged[num_staged++] = (Copy){(char *)(uintptr_t)to, copy, count};
    return OK;
}

int cuMemsetD8_v2(uint64_t place, unsigned char byte, size_t count) {
    Block *block;
    int code = checked(place, count, &block);
    if (code) return code;
    settle();
    char *copy = malloc(count);
    memset(copy, byte, count);
    staged[num_staged++] = (Copy){(char *)(uintptr_t)place, copy, count};
    return OK;
}

int cuStreamSynchronize(void *stream) {
    if (!current || stream) return INVALID_CONTEXT;
    settle();
    return OK;
}

int cuEventSynchronize(uintptr_t event) {
    if (!current) return INVALID_CONTEXT;
    last_event = event;
    num_waited++;
    Block *block = block_of(late.place);
    if (block) {
        settle();
        rights(block, PROT_READ | PROT_WRITE);
        for (uint64_t i = 0; i < late.count; i++) ((uint64_t *)(uintptr_t)late.place)[i] = late.value;
        rights(block, PROT_NONE);
    }
    late.place = 0;
    return OK;
}

int cuStreamCreate(uintptr_t *stream, unsigned flags) { (void)flags; *stream = 0x57; return OK; }
int cuEventCreate(uintptr_t *event, unsigned flags) { (void)flags; *event = 0xe7; return OK; }
int cuEventRecord(uintptr_t event, uintptr_t stream) { (void)event; (void)stream; return OK; }
int cuEventQuery(uintptr_t event) { (void)event; return late.place ? NOT_READY : OK; }
int cuModuleLoadData(uintptr_t *module, const void *image) { (void)image; *module = 1; return OK; }
int cuModuleGetFunction(uintptr_t *function, uintptr_t module, const char *name) { (void)module; (void)name; *function = 1; return OK; }
int cuPointerGetAttribute(unsigned *value, int attribute, uint64_t place) { (void)attribute; *value = block_of(place) ? 2 : 0; return OK; }

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned i, unsigned j, unsigned k, unsigned shared, void *stream,
                   uint64_t **parameters, void **extra) {
    (void)function, (void)x, (void)y, (void)z, (void)i, (void)j, (void)k, (void)shared, (void)stream, (void)extra;
    if (!current) return INVALID_CONTEXT;
    late.place = *parameters[0], late.value = *parameters[1], late.count = *parameters[2];
    return OK;
}

int stand_in_staged(void) { return num_staged; }
int stand_in_waited(void) { return num_waited; }
uintptr_t stand_in_event(void) { return last_event; }
size_t stand_in_bytes(void) { return held; }
