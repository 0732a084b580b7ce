/* Everything that a process hands on to its children is changed, of itself and of whoever else can be
 * named; each run looks first whether all of it is as new. */
#include "hostile.h"
#include <sys/resource.h>

#define MUST_BE(what, value) \
    do { \
        long is_ = (long)(what); \
        if (is_ != (long)(value)) \
            ESCAPED("%s is %ld", #what, is_); \
    } while (0)

static long mask(void)
{
    mode_t was = umask(022);
    umask(was);
    return was;
}

static long ignored(void)
{
    long count = 0;
    struct sigaction is;
    /* SIGUSR1 is ignored on purpose */
    for (int number = 1; number < 65; number++)
        if (number != SIGUSR1 && sigaction(number, NULL, &is) == 0 && is.sa_handler != SIG_DFL)
            count++;
    return count;
}

static long blocked(void)
{
    long count = 0;
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    for (int number = 1; number < 65; number++)
        count += sigismember(&set, number) == 1;
    return count;
}

static long descriptors(void)
{
    long count = 0;
    for (int fd = 3; fd < 5000; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static long pending(void)
{
    sigset_t set;
    sigpending(&set);
    return !sigisemptyset(&set);
}

int main(void)
{
    struct itimerval timer;
    int death = 0;
    char name[17] = "", place[300] = "";
    MUST_BE(getpriority(PRIO_PROCESS, 0), 0);
    MUST_BE(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 50000);
    MUST_BE(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), 1);
    MUST_BE(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
    MUST_BE(prctl(PR_GET_SECUREBITS, 0, 0, 0, 0), 0);
    MUST_BE(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0), 0);
    MUST_BE(prctl(PR_GET_CHILD_SUBREAPER, &death, 0, 0, 0) + death, 0);
    MUST_BE(prctl(PR_GET_PDEATHSIG, &death, 0, 0, 0) + death, 0);
    MUST_BE(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 0);
    MUST_BE(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), 2);
    MUST_BE(prctl(PR_GET_TSC, &death, 0, 0, 0) * 0 + death, 1);
    MUST_BE(sched_getscheduler(0), SCHED_OTHER);
    MUST_BE(syscall(SYS_ioprio_get, 1, 0) & 0x1fff, 4 * (syscall(SYS_ioprio_get, 1, 0) > 0));
    MUST_BE(mask(), 022);
    MUST_BE(ignored(), 0);
    MUST_BE(blocked(), 0);
    MUST_BE(pending(), 0);
    MUST_BE(descriptors(), 0);
    MUST_BE(getsid(0), getpid());
    MUST_BE(getpgid(0), getpid());
    MUST_BE(alarm(0), 0);
    for (int which = 0; which < 3; which++)
        MUST_BE(getitimer(which, &timer) + timer.it_value.tv_sec + timer.it_value.tv_usec, 0);
    MUST_BE(waitpid(-1, NULL, WNOHANG), -1);
    prctl(PR_GET_NAME, name, 0, 0, 0);
    MUST_BE(strcmp(name, "program") == 0 || strncmp(name, "main", 4) == 0, 1);
    MUST_BE(getcwd(place, sizeof place) && strcmp(place, "/box") == 0, 1);
    struct rlimit file;
    MUST_BE(getrlimit(RLIMIT_NOFILE, &file) + (file.rlim_cur > 16), 1);

    for (int which = PRIO_PROCESS; which <= PRIO_USER; which++)
        for (int who = 0; who < 5; who++)
            setpriority(which, (id_t)who, 15);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGHUP, 0, 0, 0);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    prctl(PR_SET_NAME, "left", 0, 0, 0);
    prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0);
    for (int who = 0; who < 5; who++) {
        struct rlimit small = {16, 16};
        sched_setscheduler(who, SCHED_IDLE, &(struct sched_param){0});
        prlimit(who, RLIMIT_NOFILE, &small, NULL);
        kill(who == 0 ? 1 : -who, SIGWINCH);
    }
    umask(0777);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (int number = 1; number < 65; number++)
        signal(number, SIG_IGN);
    (void)!chdir("/usr");
    alarm(100);
    HELD();
    return 0;
}
