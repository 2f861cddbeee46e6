// Moves the clocks of the program that this is preloaded into, by what a file says at that moment. CLOCK_MONOTONIC stays: no operator sets
// that one, and it stands still while a machine sleeps.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// The file; `Clock` in clock.rs writes it.
struct moves {
    int64_t wall;    // µs that the wall clock is ahead
    int64_t asleep;  // µs that CLOCK_BOOTTIME is ahead: as if the machine had slept
    int64_t rate;    // how much faster than CLOCK_MONOTONIC the wall clock runs, in millionths
    int64_t since;   // from this moment of CLOCK_MONOTONIC on, in ns
};

static const volatile struct moves *moves; // null until `begin`: other constructors may ask for the time before

// Straight from the kernel: looking up the next definition would allocate, and allocators ask for the time.
static int64_t nanos_of(clockid_t clock) {
    struct timespec now = {0, 0};
    syscall(SYS_clock_gettime, clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    int64_t ahead = 0;
    if (!failed && moves && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t rate = moves->rate;
        ahead = moves->wall * 1000;
        if (rate) ahead += (nanos_of(CLOCK_MONOTONIC) - moves->since) / 1000 * rate / 1000;
    } else if (!failed && moves && clock == CLOCK_BOOTTIME) {
        ahead = moves->asleep * 1000;
    }
    if (ahead) {
        int64_t nanos = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + ahead;
        now->tv_sec = nanos / 1000000000;
        now->tv_nsec = nanos % 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (seconds) *seconds = precise.tv_sec;
    return precise.tv_sec;
}

// Programs that do not ask the C library call the kernel's own code (the vDSO). Its first instructions become a jump to the function above.
static void lead_here(void) {
#if defined(__x86_64__)
    const char *name = "__vdso_clock_gettime";
    unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; // movabs rax, target; jmp rax
    const size_t target = 2;
#elif defined(__aarch64__)
    const char *name = "__kernel_clock_gettime";
    unsigned char jump[] = {0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0}; // ldr x16, target; br x16
    const size_t target = 8;
#else
#error "how to jump on this machine?"
#endif
    void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *code = vdso ? dlsym(vdso, name) : NULL;
    if (!code) return; // then everybody asks the C library
    int (*here)(clockid_t, struct timespec *) = clock_gettime;
    memcpy(jump + target, &here, sizeof here);
    // It can be changed as a whole only, and says nowhere how large it is.
    Dl_info info;
    if (!dladdr(code, &info)) goto failed;
    long page = sysconf(_SC_PAGESIZE);
    for (long pages = 1; pages <= 16; pages++) {
        if (mprotect(info.dli_fbase, (size_t)(pages * page), PROT_READ | PROT_WRITE | PROT_EXEC) == 0) {
            memcpy(code, jump, sizeof jump);
            __builtin___clear_cache(code, (char *)code + sizeof jump);
            return;
        }
    }
failed:
    perror("the vDSO can't be changed");
    _exit(1);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = mmap(NULL, sizeof *moves, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        perror("CLOCK_FILE");
        _exit(1);
    }
    close(file);
    moves = mapped;
    lead_here();
}
