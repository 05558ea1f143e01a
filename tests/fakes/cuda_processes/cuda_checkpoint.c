/* The command line of cuda-checkpoint over state.h, as CRIU's plugin calls it; built with -DOLD it
 * can only toggle. A failure ends it with CUDA's number, as it does the real one. */
#include <getopt.h>

#include "state.h"

static const char *const states[] = { "running", "locked", "checkpointed", "failed" };

static const struct option options[] = {
	{ "get-state", no_argument, NULL, 's' },
	{ "get-restore-tid", no_argument, NULL, 'r' },
	{ "toggle", no_argument, NULL, 'g' },
	{ "action", required_argument, NULL, 'a' },
	{ "pid", required_argument, NULL, 'p' },
	{ "timeout", required_argument, NULL, 't' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static int help(void)
{
	puts("CUDA checkpoint and restore utility (a stand-in for tests).\n"
	     "--toggle --pid <pid>");
#ifndef OLD
	puts("--get-state --pid <pid>\n"
	     "--action lock | checkpoint | restore | unlock --pid <pid> [--timeout <ms>]\n"
	     "--get-restore-tid --pid <pid>");
#endif
	return scripted("help", NULL, 0);
}

static int asked(const char *action, int pid)
{
	struct process process;
	int code;

	if (!find(pid, &process))
		return INVALID_VALUE;
	code = scripted(action, &process, 0);
	if (!code && strcmp(action, "get-state") == 0)
		puts(states[get_state(&process) & 3]);
	else if (!code)
		printf("%d\n", restore_thread(process.pid));
	return code;
}

static int act(const char *action, int pid, int timeout_ms)
{
	if (strcmp(action, "lock") == 0)
		return transition(action, pid, RUNNING, LOCKED, timeout_ms);
	if (strcmp(action, "checkpoint") == 0)
		return transition(action, pid, LOCKED, CHECKPOINTED, 0);
	if (strcmp(action, "restore") == 0)
		return transition(action, pid, CHECKPOINTED, LOCKED, 0);
	if (strcmp(action, "unlock") == 0)
		return transition(action, pid, LOCKED, RUNNING, 0);
	return INVALID_VALUE;
}

static int toggle(int pid)
{
	struct process process;
	int suspended, code;

	if (!find(pid, &process))
		return INVALID_VALUE;
	suspended = get_state(&process) == CHECKPOINTED;
	code = act(suspended ? "restore" : "lock", pid, 0);
	return code ? code : act(suspended ? "unlock" : "checkpoint", pid, 0);
}

int main(int argc, char **argv)
{
	const char *action = NULL, *told = "toggle";
	int pid = 0, timeout_ms = 0, each, code;

	while ((each = getopt_long(argc, argv, "srga:p:t:h", options, NULL)) != -1)
		switch (each) {
		case 's': told = "get-state"; break;
		case 'r': told = "get-restore-tid"; break;
		case 'a': told = action = optarg; break;
		case 'p': pid = atoi(optarg); break;
		case 't': timeout_ms = atoi(optarg); break;
		case 'g': break;
		case 'h': return help();
		default: return INVALID_VALUE;
		}
	tell(told, pid, "");
	code = action ? act(action, pid, timeout_ms)
	     : strcmp(told, "toggle") == 0 ? toggle(pid) : asked(told, pid);
	if (code)
		fprintf(stderr, "%s of process %d failed: CUDA error %d\n", told, pid, code);
	/* An exit status has eight bits, and none of CUDA's numbers may look like success. */
	return code > 255 ? 255 : code;
}
