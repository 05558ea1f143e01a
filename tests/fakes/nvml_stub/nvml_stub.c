/* A libnvidia-ml.so.1 for tests: reads what to answer from the file "nvml" beside itself.
 *
 * Lines, one fact each:
 *   driver 570.133.20
 *   cuda 12080
 *   gpu uuid=GPU-… minor=0 name=NVIDIA_H100 brand=14 arch=9 total=… reserved=… cores=16896
 *       cc=9.0 pci=00000000:1A:00.0 mig=0 link=2,00000000:CE:00.0,1 …        (on one line)
 *   fault <call> <index of a GPU, or *> <error code>
 *   event <index> <xid>
 *   process <index> <pid> <bytes, or none> <1: client of MPS> <name of the program>
 * As with the real library, the GPUs are those of the last nvmlInit; faults and events are followed.
 * Struct layouts, buffer sizes and version words: nvml.h as nvidia-ml-py declares it.
 * -DOLD leaves out what drivers before 450 to 510 lack.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    ARGUMENT_VERSION_MISMATCH = 25,
};

enum { MAX_GPUS = 16, MAX_LINKS = 18, LINE = 4096 };

struct gpu {
    int index, registered, mig, links, link_kind[MAX_LINKS], link_up[MAX_LINKS];
    unsigned minor, brand, arch, cores;
    int major, minor_cc;
    unsigned long long total, reserved;
    char uuid[96], name[96], pci[32], link_end[MAX_LINKS][32];
};

typedef struct gpu *device;

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct event_data {
    device gpu;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

_Static_assert(sizeof(struct process) == 24, "nvmlProcessInfo_t is 24 bytes");
_Static_assert(sizeof(struct memory_v2) == 40, "nvmlMemory_v2_t is 0x28 bytes");
_Static_assert(sizeof(struct pci) == 68, "nvmlPciInfo_t is 68 bytes");
_Static_assert(sizeof(struct event_data) == 32, "nvmlEventData_t is 32 bytes");

static struct gpu gpus[MAX_GPUS];
static int count, initialised, delivered, event_set, compute_modes[MAX_GPUS];

static FILE *script(void)
{
    Dl_info info;
    char path[LINE];
    if (!dladdr((void *)script, &info))
        abort();
    snprintf(path, sizeof path, "%s", info.dli_fname);
    char *slash = strrchr(path, '/');
    snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "nvml");
    FILE *file = fopen(path, "r");
    if (!file)
        abort();
    return file;
}

static int fault(const char *call, int index)
{
    char line[LINE], name[64], which[16];
    int code, found = SUCCESS;
    FILE *file = script();
    while (found == SUCCESS && fgets(line, sizeof line, file))
        if (sscanf(line, "fault %63s %15s %d", name, which, &code) == 3 && !strcmp(name, call) &&
            (!strcmp(which, "*") || atoi(which) == index))
            found = code;
    fclose(file);
    return found;
}

static void word(const char *key, char *into, size_t size)
{
    char line[LINE], name[64], value[128];
    FILE *file = script();
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %127s", name, value) == 2 && !strcmp(name, key))
            snprintf(into, size, "%s", value);
    fclose(file);
}

static void set(struct gpu *gpu, const char *key, const char *value)
{
    if (!strcmp(key, "uuid"))
        snprintf(gpu->uuid, sizeof gpu->uuid, "%s", value);
    else if (!strcmp(key, "name"))
        for (size_t i = 0; i < sizeof gpu->name - 1 && value[i]; i++)
            gpu->name[i] = value[i] == '_' ? ' ' : value[i];
    else if (!strcmp(key, "pci"))
        snprintf(gpu->pci, sizeof gpu->pci, "%s", value);
    else if (!strcmp(key, "minor"))
        gpu->minor = (unsigned)atoi(value);
    else if (!strcmp(key, "brand"))
        gpu->brand = (unsigned)atoi(value);
    else if (!strcmp(key, "arch"))
        gpu->arch = (unsigned)atoi(value);
    else if (!strcmp(key, "cores"))
        gpu->cores = (unsigned)atoi(value);
    else if (!strcmp(key, "mig"))
        gpu->mig = atoi(value);
    else if (!strcmp(key, "total"))
        gpu->total = strtoull(value, NULL, 10);
    else if (!strcmp(key, "reserved"))
        gpu->reserved = strtoull(value, NULL, 10);
    else if (!strcmp(key, "cc"))
        sscanf(value, "%d.%d", &gpu->major, &gpu->minor_cc);
    else if (!strcmp(key, "link") &&
             sscanf(value, "%d,%31[^,],%d", &gpu->link_kind[gpu->links],
                    gpu->link_end[gpu->links], &gpu->link_up[gpu->links]) == 3)
        gpu->links++;
    else
        abort();
}

static int check(const char *call, device gpu)
{
    if (!initialised)
        return UNINITIALIZED;
    if (!gpu)
        return INVALID_ARGUMENT;
    return fault(call, gpu->index);
}

static int text(char *into, unsigned size, const char *value)
{
    if (size <= strlen(value))
        return INSUFFICIENT_SIZE;
    strcpy(into, value);
    return SUCCESS;
}

const char *nvmlErrorString(int code)
{
    (void)code;
    return "an error of the stub";
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    int code = fault("init", -1);
    if (code)
        return code;
    char line[LINE], *rest, *field;
    FILE *file = script();
    memset(gpus, 0, sizeof gpus);
    count = 0;
    while (fgets(line, sizeof line, file) && count < MAX_GPUS) {
        if (strncmp(line, "gpu ", 4))
            continue;
        gpus[count].index = count;
        for (field = strtok_r(line + 4, " \n", &rest); field; field = strtok_r(NULL, " \n", &rest)) {
            char *equals = strchr(field, '=');
            *equals = 0;
            set(&gpus[count], field, equals + 1);
        }
        count++;
    }
    fclose(file);
    initialised = 1;
    return SUCCESS;
}

int nvmlShutdown(void)
{
    if (!initialised)
        return UNINITIALIZED;
    initialised = event_set = 0;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    char value[80] = "570.133.20";
    word("driver", value, sizeof value);
    int code = fault("driverVersion", -1);
    return code ? code : text(version, size, value);
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
    char value[80] = "12080";
    word("cuda", value, sizeof value);
    *version = atoi(value);
    return fault("cudaVersion", -1);
}

int nvmlDeviceGetCount_v2(unsigned *into)
{
    *into = (unsigned)count;
    return initialised ? fault("enumerate", -1) : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *into)
{
    if (!initialised)
        return UNINITIALIZED;
    if ((int)index >= count)
        return INVALID_ARGUMENT;
    *into = &gpus[index];
    return fault("handle", (int)index);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device *into)
{
    if (!initialised)
        return UNINITIALIZED;
    for (int i = 0; i < count; i++)
        if (!strcmp(gpus[i].uuid, uuid))
            return *into = &gpus[i], fault("handle", i);
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(device gpu, char *into, unsigned size)
{
    int code = check("uuid", gpu);
    return code ? code : text(into, size, gpu->uuid);
}

int nvmlDeviceGetName(device gpu, char *into, unsigned size)
{
    int code = check("name", gpu);
    return code ? code : text(into, size, gpu->name);
}

int nvmlDeviceGetMinorNumber(device gpu, unsigned *into)
{
    int code = check("minor", gpu);
    return code ? code : (*into = gpu->minor, SUCCESS);
}

int nvmlDeviceGetBrand(device gpu, unsigned *into)
{
    int code = check("brand", gpu);
    return code ? code : (*into = gpu->brand, SUCCESS);
}

int nvmlDeviceGetCudaComputeCapability(device gpu, int *major, int *minor)
{
    int code = check("computeCapability", gpu);
    return code ? code : (*major = gpu->major, *minor = gpu->minor_cc, SUCCESS);
}

int nvmlDeviceGetMemoryInfo(device gpu, struct memory *into)
{
    int code = check("memory", gpu);
    if (code)
        return code;
    *into = (struct memory){gpu->total, gpu->total - gpu->reserved, gpu->reserved};
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(device gpu, struct pci *into)
{
    int code = check("pci", gpu);
    if (code)
        return code;
    memset(into, 0, sizeof *into);
    snprintf(into->bus_id, sizeof into->bus_id, "%s", gpu->pci);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(device gpu, unsigned link, unsigned *into)
{
    int code = check("nvlink", gpu);
    if (code)
        return code;
    if (!gpu->links)
        return NOT_SUPPORTED;
    if ((int)link >= gpu->links)
        return INVALID_ARGUMENT;
    *into = (unsigned)gpu->link_up[link];
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(device gpu, unsigned link, struct pci *into)
{
    int code = check("nvlinkPeer", gpu);
    if (code)
        return code;
    memset(into, 0, sizeof *into);
    snprintf(into->bus_id, sizeof into->bus_id, "%s", gpu->link_end[link]);
    return SUCCESS;
}

int nvmlDeviceGetComputeMode(device gpu, unsigned *into)
{
    int code = check("computeMode", gpu);
    return code ? code : (*into = (unsigned)compute_modes[gpu->index], SUCCESS);
}

int nvmlDeviceSetComputeMode(device gpu, unsigned mode)
{
    int code = check("setComputeMode", gpu);
    return code ? code : (compute_modes[gpu->index] = (int)mode, SUCCESS);
}

int nvmlSystemGetProcessName(unsigned pid, char *into, unsigned size)
{
    char line[LINE], name[128], found[128] = "";
    unsigned listed;
    FILE *file = script();
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "process %*d %u %*s %*d %127s", &listed, name) == 2 && listed == pid)
            snprintf(found, sizeof found, "%s", name);
    fclose(file);
    return *found ? text(into, size, found) : NOT_FOUND;
}

int nvmlEventSetCreate(int **into)
{
    int code = fault("eventSet", -1);
    event_set = 1;
    *into = &event_set;
    return code;
}

int nvmlEventSetFree(int *set)
{
    *set = 0;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(device gpu, unsigned long long types, int *set)
{
    int code = check("events", gpu);
    if (code)
        return code;
    if (!*set)
        return INVALID_ARGUMENT;
    gpu->registered = (types & 8) != 0;
    return SUCCESS;
}

int nvmlEventSetWait_v2(int *set, struct event_data *into, unsigned timeout_ms)
{
    if (!initialised || !*set)
        return UNINITIALIZED;
    for (unsigned waited = 0;; waited += 5) {
        int code = fault("wait", -1), number = 0, index;
        unsigned long long xid;
        char line[LINE];
        if (code)
            return code;
        FILE *file = script();
        while (fgets(line, sizeof line, file)) {
            if (sscanf(line, "event %d %llu", &index, &xid) != 2 || number++ < delivered)
                continue;
            delivered++;
            if (index >= 0 && !gpus[index].registered)
                continue;
            memset(into, 0, sizeof *into);
            into->gpu = index < 0 ? NULL : &gpus[index];
            into->type = 8;
            into->data = xid;
            fclose(file);
            return SUCCESS;
        }
        fclose(file);
        if (waited >= timeout_ms)
            return TIMEOUT;
        usleep(5000);
    }
}

#ifndef OLD

static int processes(device gpu, int mps, unsigned *number, struct process *into)
{
    char line[LINE], bytes[32];
    int index, client;
    unsigned pid, room = *number, found = 0;
    FILE *file = script();
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "process %d %u %31s %d", &index, &pid, bytes, &client) != 4 ||
            index != gpu->index || client != mps)
            continue;
        if (found < room)
            into[found] = (struct process){pid, strtoull(bytes, NULL, 10), ~0u, ~0u};
        if (found < room && !strcmp(bytes, "none"))
            into[found].memory = ~0ull;
        found++;
    }
    fclose(file);
    *number = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device gpu, unsigned *number, struct process *into)
{
    int code = check("processes", gpu);
    return code ? code : processes(gpu, 0, number, into);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(device gpu, unsigned *number, struct process *into)
{
    int code = check("mpsProcesses", gpu);
    return code ? code : processes(gpu, 1, number, into);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

int nvmlDeviceGetMemoryInfo_v2(device gpu, struct memory_v2 *into)
{
    int code = check("memory", gpu);
    if (code)
        return code;
    if (into->version != (sizeof *into | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    into->total = gpu->total;
    into->reserved = gpu->reserved;
    into->free = gpu->total - gpu->reserved;
    into->used = 0;
    return SUCCESS;
}

int nvmlDeviceGetArchitecture(device gpu, unsigned *into)
{
    int code = check("architecture", gpu);
    return code ? code : (*into = gpu->arch, SUCCESS);
}

int nvmlDeviceGetNumGpuCores(device gpu, unsigned *into)
{
    int code = check("cores", gpu);
    return code ? code : (*into = gpu->cores, SUCCESS);
}

int nvmlDeviceGetMigMode(device gpu, unsigned *current, unsigned *pending)
{
    int code = check("mig", gpu);
    return code ? code : (*current = *pending = (unsigned)gpu->mig, SUCCESS);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(device gpu, unsigned link, unsigned *into)
{
    int code = check("nvlinkPeer", gpu);
    return code ? code : (*into = (unsigned)gpu->link_kind[link], SUCCESS);
}

#endif
