/*
 * xstate.c: lets the User-Mode Linux kernel of Debian 12 (6.1) run on processors
 * whose register state is larger than it knows, those with AMX. setup.sh builds
 * it there, vm.sh loads it before that kernel's C library.
 *
 * That kernel keeps a task's floating point registers in a buffer of 2,696 bytes,
 * what AVX-512 and PKRU take. PTRACE_GETREGSET fills as much as fits, but
 * PTRACE_SETREGSET wants all of the state or answers EFAULT. So what it sets is
 * put in front of zeros here: the state's header says that nothing there is in
 * use, and a guest's programs can't ask for AMX.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

long ptrace(enum __ptrace_request request, ...)
{
	static long (*next)(enum __ptrace_request, ...);
	/* Static: that kernel's stacks are small, and it has one thread for this. */
	static char state[1 << 16] __attribute__((aligned(64)));
	static size_t size; /* of the whole state, once known */

	va_list args;
	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);

	if (!next)
		next = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
	if (request != PTRACE_SETREGSET || addr != (void *)NT_X86_XSTATE)
		return next(request, pid, addr, data);

	struct iovec whole = {state, sizeof state};
	if (!size) {
		if (next(PTRACE_GETREGSET, pid, addr, &whole) < 0)
			return -1;
		size = whole.iov_len;
		memset(state, 0, sizeof state);
	}
	struct iovec *given = data;
	if (given->iov_len >= size)
		return next(request, pid, addr, data);
	memcpy(state, given->iov_base, given->iov_len);
	whole.iov_len = size;
	return next(request, pid, addr, &whole);
}
