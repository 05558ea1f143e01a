/* Counts as the shell's script in checkpoint_site.py does, beside a thread that never does anything:
 * CRIU's plugin lets one thread of a frozen process go on, and in users of CUDA this is never the
 * first. The library that it is given is mapped, so that it looks as one that uses CUDA. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void *wait_for_ever(void *nothing)
{
	for (;;)
		pause();
	return nothing;
}

static void end(int number)
{
	_exit(number != SIGTERM);
}

int main(int argc, char **argv)
{
	char id[37] = "";
	pthread_t thread;
	FILE *file = fopen("/proc/sys/kernel/random/uuid", "r");

	int library = argc > 1 ? open(argv[1], O_RDONLY) : -1;

	if (library < 0 || mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, library, 0) == MAP_FAILED ||
	    close(library))
		return 1;
	if (!file || fscanf(file, "%36s", id) != 1 || fclose(file) ||
	    pthread_create(&thread, NULL, wait_for_ever, NULL))
		return 1;
	signal(SIGTERM, end);
	for (long count = 1;; count++) {
		file = fopen("/tmp/count", "w");
		if (!file || fprintf(file, "%s %ld\n", id, count) < 0 || fclose(file))
			return 1;
		usleep(100000);
	}
}
