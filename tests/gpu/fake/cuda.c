/* Stands in for libcuda: memory is counted, kernels sleep, checkpoints succeed. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define OUT_OF_MEMORY 2
#define SMS 100

static uint64_t used, next = 0x1000;

/* The limit of "0=<N>M"; what is spelled otherwise is none, as on some drivers. */
static uint64_t limit(void)
{
    const char *text = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    unsigned long long mib;
    char unit;
    if (text && sscanf(text, "0=%llu%c", &mib, &unit) == 2 && unit == 'M')
        return mib * MIB;
    return 8192 * MIB;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &used; return device; }
int cuCtxSetCurrent(void *context) { return context == NULL; }
int cuCtxSynchronize(void) { return 0; }

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const char *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    *value = percent ? SMS * atoi(percent) / 100 : SMS;
    return attribute != 16 || device != 0;
}

int cuMemGetInfo_v2(size_t *free, size_t *total)
{
    *free = limit() - used;
    *total = 16384 * MIB;
    return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t size)
{
    if (used + size > limit())
        return OUT_OF_MEMORY;
    used += size;
    *address = next;
    next += size;
    return 0;
}

int cuMemFree_v2(uint64_t address) { return address == 0; }
int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t size) { return !(address && value && size); }

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size)
{
    memset(to, (int)(from % 251), size);
    return 0;
}

int cuModuleLoadData(void **module, const void *image) { *module = &next; return image == NULL; }

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    *function = module;
    return strcmp(name, "spin") != 0;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **values, void **extra)
{
    if (!function || gx * gy * gz * bx * by * bz != 1 || shared || stream || extra)
        return 1;
    usleep((useconds_t)(*(uint64_t *)values[0] / 1000));
    return 0;
}

static int state;

int cuCheckpointProcessGetState(int pid, int *value) { *value = state; return pid <= 0; }
int cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) { return *tid = pid, pid <= 0; }
int cuCheckpointProcessLock(int pid, unsigned *arguments) { state = 1; return pid <= 0 || !arguments[0]; }
int cuCheckpointProcessCheckpoint(int pid, void *arguments) { state = 2; return pid <= 0 || arguments; }
int cuCheckpointProcessRestore(int pid, void *arguments) { state = 1; return pid <= 0 || arguments; }
int cuCheckpointProcessUnlock(int pid, void *arguments) { state = 0; return pid <= 0 || arguments; }
