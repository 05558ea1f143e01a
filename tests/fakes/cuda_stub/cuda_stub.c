/* What a smallest client needs of libcuda. It takes CUDA_MPS_PIPE_DIRECTORY for a daemon where that
 * has `control`, and behaves as the first word of the file BEHAVIOUR beside it says. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int behaves(const char *word)
{
	char found[32] = "";
	FILE *file = fopen(BEHAVIOUR, "r");

	if (file) {
		if (fscanf(file, "%31s", found) != 1)
			found[0] = 0;
		fclose(file);
	}
	return strcmp(found, word) == 0;
}

static int sees(const char *name)
{
	char path[4096];
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");

	snprintf(path, sizeof(path), "%s/%s", folder ? folder : "", name);
	return access(path, F_OK) == 0;
}

int cuInit(unsigned int flags)
{
	(void)flags;
	if (behaves("hang"))
		pause();
	if (behaves("crash"))
		abort();
	return behaves("no-device") ? 100 : 0;
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	(void)device;
	*context = NULL;
	if (!sees("control"))
		return behaves("not-exclusive") ? 0 : 46;
	if (behaves("needs-log") && !sees("log"))
		return 805;
	if (behaves("only-uid") && getuid() != 1000)
		return 800;
	return 0;
}

int cuCtxSetCurrent(void *context)
{
	(void)context;
	return 0;
}

int cuMemAlloc_v2(unsigned long long *memory, size_t size)
{
	*memory = 1;
	if (size != 16 << 20)
		return 1;
	return behaves("full") ? 2 : 0;
}

int cuMemFree_v2(unsigned long long memory)
{
	return memory == 1 ? 0 : 1;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	return 0;
}
