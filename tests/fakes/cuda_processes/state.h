/* CUDA state of processes, in files of the folder STATE that a libcuda and a cuda-checkpoint share.
 *
 * A process uses CUDA where its environment has FAKE_CUDA=<key>. Its state is kept under its key,
 * pid and start time. One that appears under a key after another was checkpointed under that was
 * restored from an image by CRIU: it starts out checkpointed.
 *
 * STATE/<action>, or STATE/<action>.<key> for one key alone, says what becomes of an action:
 *   fail N [S]   returns N; leaves the process in state S where that is given
 *   busy         takes as long as a lock may, then returns NOT_READY
 *   hang, crash  never returns; ends the caller by SIGSEGV
 *   kill         ends the process, then the caller by SIGSEGV
 * Actions: get-restore-tid, get-state, lock, checkpoint, restore, unlock; of the library alone
 * also init, of the program alone also help.
 * STATE/calls gets a line for each, and for the library's own way out. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };
enum { SUCCESS = 0, INVALID_VALUE = 1, ILLEGAL_STATE = 401, NOT_READY = 600 };

struct process {
	char key[64];
	int pid;
	unsigned long long started;
};

static inline FILE *open_proc(int pid, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	return fopen(path, "r");
}

static inline int key_of(int pid, char *key, size_t size)
{
	char *text = NULL;
	size_t room = 0;
	int found = 0;
	FILE *file = open_proc(pid, "environ");

	while (file && !found && getdelim(&text, &room, 0, file) > 0)
		if (strncmp(text, "FAKE_CUDA=", 10) == 0)
			found = snprintf(key, size, "%s", text + 10) > 0;
	free(text);
	if (file)
		fclose(file);
	return found;
}

/* The process of a thread, as the real one finds it by any of its threads; 0: there is none. */
static inline int process_of(int thread)
{
	char line[256];
	int pid = 0;
	FILE *file = open_proc(thread, "status");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Tgid: %d", &pid) == 1)
			break;
	if (file)
		fclose(file);
	return pid;
}

static inline unsigned long long start_of(int pid)
{
	char text[1024] = "";
	const char *rest;
	unsigned long long started = 0;
	FILE *file = open_proc(pid, "stat");

	if (file && fread(text, 1, sizeof(text) - 1, file) && (rest = strrchr(text, ')')))
		sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d"
			     " %*d %*d %llu", &started);
	if (file)
		fclose(file);
	return started;
}

static inline int find(int thread, struct process *process)
{
	process->pid = process_of(thread);
	process->started = start_of(process->pid);
	return process->pid && key_of(process->pid, process->key, sizeof(process->key));
}

/* Beside the first thread there is one that restores, as the real library starts one. */
static inline int restore_thread(int pid)
{
	char path[64];
	const struct dirent *each;
	int thread = pid;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	folder = opendir(path);
	while (folder && (each = readdir(folder)))
		if (atoi(each->d_name) > thread)
			thread = atoi(each->d_name);
	if (folder)
		closedir(folder);
	return thread;
}

static inline int read_number(const char *path, int otherwise)
{
	int number = otherwise;
	FILE *file = fopen(path, "r");

	if (file && fscanf(file, "%d", &number) != 1)
		number = otherwise;
	if (file)
		fclose(file);
	return number;
}

static inline void write_number(const char *path, int number)
{
	char fresh[512];
	FILE *file;

	snprintf(fresh, sizeof(fresh), "%s.%d", path, getpid());
	file = fopen(fresh, "w");
	if (!file)
		return;
	fprintf(file, "%d\n", number);
	fclose(file);
	rename(fresh, path);
}

static inline void state_path(const struct process *process, char *path, size_t size)
{
	snprintf(path, size, STATE "/state.%s.%d.%llu", process->key, process->pid,
		 process->started);
}

static inline void set_state(const struct process *process, int state)
{
	char path[400];

	state_path(process, path, sizeof(path));
	write_number(path, state);
	if (state == CHECKPOINTED) {
		snprintf(path, sizeof(path), STATE "/image.%s", process->key);
		write_number(path, 1);
	}
}

static inline int get_state(const struct process *process)
{
	char path[400], image[400];
	int state;

	state_path(process, path, sizeof(path));
	snprintf(image, sizeof(image), STATE "/image.%s", process->key);
	state = read_number(path, -1);
	if (state < 0) {
		state = access(image, F_OK) == 0 ? CHECKPOINTED : RUNNING;
		set_state(process, state);
	}
	return state;
}

static inline void tell(const char *action, int pid, const char *arguments)
{
	FILE *file = fopen(STATE "/calls", "a");

	if (!file)
		return;
	fprintf(file, "%d %s %d %s\n", getpid(), action, pid, arguments);
	fclose(file);
}

/* What the script has for an action; 0: nothing, it takes its course. */
static inline int scripted(const char *action, const struct process *process, int timeout_ms)
{
	char path[400], word[16] = "";
	int code = 0, state = -1;
	FILE *file;

	snprintf(path, sizeof(path), STATE "/%s.%s", action, process ? process->key : "");
	file = fopen(path, "r");
	snprintf(path, sizeof(path), STATE "/%s", action);
	file = file ? file : fopen(path, "r");
	if (!file)
		return SUCCESS;
	if (fscanf(file, "%15s %d %d", word, &code, &state) > 2 && process)
		set_state(process, state);
	fclose(file);
	while (strcmp(word, "hang") == 0)
		pause();
	if (strcmp(word, "kill") == 0 && process)
		kill(process->pid, SIGKILL);
	if (strcmp(word, "crash") == 0 || strcmp(word, "kill") == 0)
		raise(SIGSEGV);
	if (strcmp(word, "busy") == 0) {
		usleep(timeout_ms * 1000);
		return NOT_READY;
	}
	return code;
}

static inline int transition(const char *action, int thread, int from, int to, int timeout_ms)
{
	struct process process;
	int code;

	if (!find(thread, &process))
		return INVALID_VALUE;
	code = scripted(action, &process, timeout_ms);
	if (code)
		return code;
	if (get_state(&process) != from)
		return ILLEGAL_STATE;
	set_state(&process, to);
	return SUCCESS;
}
