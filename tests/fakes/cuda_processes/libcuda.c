/* The checkpoint API of libcuda over state.h; built with -DOLD it is of a driver without. */
#include <stdint.h>

#include "state.h"

struct lock_args {
	unsigned timeout_ms, reserved0;
	uint64_t reserved1[7];
};

struct gpu_pair {
	unsigned char old_uuid[16], new_uuid[16];
};

struct restore_args {
	const struct gpu_pair *pairs;
	unsigned count;
	unsigned char reserved[44];
	uint64_t reserved1;
};

int cuInit(unsigned flags)
{
	char open_files[256] = "";
	const struct dirent *each;
	DIR *folder = opendir("/proc/self/fd");

	while (folder && (each = readdir(folder)))
		if (atoi(each->d_name) > 2 && atoi(each->d_name) != dirfd(folder))
			strncat(open_files, each->d_name, sizeof(open_files) - strlen(open_files) - 1);
	if (folder)
		closedir(folder);
	tell("init", (int)flags, open_files);
	return scripted("init", NULL, 0);
}

__attribute__((destructor)) static void unload(void)
{
	tell("exit", getpid(), "");
}

int cuDriverGetVersion(int *version)
{
	*version = read_number(STATE "/version", 13000);
	return SUCCESS;
}

int cuGetErrorName(int code, const char **name)
{
	*name = code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
	      : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
	      : code == 100 ? "CUDA_ERROR_NO_DEVICE"
	      : code == ILLEGAL_STATE ? "CUDA_ERROR_ILLEGAL_STATE"
	      : code == NOT_READY ? "CUDA_ERROR_NOT_READY"
	      : code == 801 ? "CUDA_ERROR_NOT_SUPPORTED" : NULL;
	return *name ? SUCCESS : INVALID_VALUE;
}

#ifndef OLD

static int zero(const void *bytes, size_t size)
{
	const unsigned char *each = bytes;

	while (size && !each[size - 1])
		size--;
	return size == 0;
}

int cuCheckpointProcessGetRestoreThreadId(int pid, int *thread)
{
	struct process process;
	int code;

	tell("get-restore-tid", pid, "");
	if (!find(pid, &process))
		return INVALID_VALUE;
	code = scripted("get-restore-tid", &process, 0);
	*thread = restore_thread(process.pid);
	return code;
}

/* The real one, too, calls a process running that does not use CUDA. */
int cuCheckpointProcessGetState(int pid, int *state)
{
	struct process process;
	int known = find(pid, &process);
	int code = known ? scripted("get-state", &process, 0) : SUCCESS;

	tell("get-state", pid, "");
	*state = known ? get_state(&process) : RUNNING;
	return process.pid ? code : INVALID_VALUE;
}

int cuCheckpointProcessLock(int pid, const struct lock_args *args)
{
	char text[32];

	snprintf(text, sizeof(text), "%u", args->timeout_ms);
	tell("lock", pid, text);
	if (args->reserved0 || !zero(args->reserved1, sizeof(args->reserved1)))
		return INVALID_VALUE;
	return transition("lock", pid, RUNNING, LOCKED, (int)args->timeout_ms);
}

int cuCheckpointProcessCheckpoint(int pid, const void *args)
{
	tell("checkpoint", pid, "");
	return zero(args, 64) ? transition("checkpoint", pid, LOCKED, CHECKPOINTED, 0) : INVALID_VALUE;
}

static char *hex(char *to, const unsigned char *uuid)
{
	for (int i = 0; i < 16; i++)
		to += sprintf(to, "%02x", uuid[i]);
	return to;
}

int cuCheckpointProcessRestore(int pid, const struct restore_args *args)
{
	char text[2048] = "", *end = text;

	for (unsigned i = 0; i < args->count && i < 16; i++) {
		end = hex(end, args->pairs[i].old_uuid);
		*end++ = '=';
		end = hex(end, args->pairs[i].new_uuid);
		*end++ = ' ';
		*end = 0;
	}
	tell("restore", pid, text);
	if (!zero(args->reserved, sizeof(args->reserved)) || args->reserved1)
		return INVALID_VALUE;
	return transition("restore", pid, CHECKPOINTED, LOCKED, 0);
}

int cuCheckpointProcessUnlock(int pid, const void *args)
{
	tell("unlock", pid, "");
	return zero(args, 64) ? transition("unlock", pid, LOCKED, RUNNING, 0) : INVALID_VALUE;
}

#endif
