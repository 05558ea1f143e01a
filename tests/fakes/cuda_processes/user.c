/* A process that looks as one that uses CUDA: it maps the library that it is given, and has a thread
 * beside its first. It is static and has no files open, so that CRIU can take it anywhere. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static void *rest(void *nothing)
{
	for (;;)
		pause();
	return nothing;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;

	if (file < 0 || mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED)
		return 1;
	close(file);
	if (pthread_create(&thread, NULL, rest, NULL) != 0)
		return 1;
	rest(NULL);
	return 0;
}
