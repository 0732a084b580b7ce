/* oj-box for people: `run` tries one program, `check` proves the limits.
 *
 * Both are clients of a slot in the same process tree, with the messages that
 * the executor uses, so what they show is what the executor gets. */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FAILED_OURSELVES = 125 }; /* as env(1) and timeout(1) have it */

enum { FIRST_UID = 64090 }; /* below the executor's slots, so that they never meet */

static const struct message_head default_limits = {
    .magic = "OJB2",
    .kind = MESSAGE_RUN,
    .number = 1,
    .files = FILES_DEFAULT,
    .cpu_us = 1000000,
    .wall_us = 0, /* three times the cpu limit */
    .memory_bytes = 256ULL << 20,
    .output_bytes = 64ULL << 20,
    .processes = 64,
    .disk_bytes = 64ULL << 20,
};

static size_t add_strings(char *bytes, size_t used, const char *const strings[], uint32_t *count)
{
    *count = 0;
    for (size_t i = 0; strings[i]; i++) {
        size_t length = strlen(strings[i]) + 1;
        if (used + length > MESSAGE_MAX_BYTES)
            die("the command and its environment are too long");
        memcpy(bytes + used, strings[i], length);
        used += length;
        ++*count;
    }
    return used;
}

/* Sends one run to the box's only slot and waits for the answer. */
static int run_once(const struct box *box, struct message_head head, const char *const argv[],
                    const char *const envp[], const int fds[4], struct answer *answer,
                    struct fault *fault)
{
    static char bytes[MESSAGE_MAX_BYTES];
    static const char cwd[] = TREE_BOX;
    size_t used = sizeof head, length = sizeof *answer;
    int count = 0;

    memcpy(bytes + used, cwd, sizeof cwd);
    used = add_strings(bytes, used + sizeof cwd, argv, &head.argc);
    used = add_strings(bytes, used, envp, &head.envc);
    memcpy(bytes, &head, sizeof head);
    if (send_message(box->sockets[0], bytes, used, fds, 4) < 0)
        return fault_errno(fault, "cannot send the request");
    if (receive_message(box->sockets[0], (char *)answer, &length, NULL, &count, 0) <= 0 ||
        length != sizeof *answer)
        return fault_say(fault, "the slot died");
    if (answer->kind != ANSWER_RAN) {
        *fault = answer->fault;
        return -1;
    }
    if (answer->flags & ANSWER_UNSURE)
        return fault_say(fault, "other programs of this machine took much memory of the kernel "
                                "meanwhile: try again");
    return 0;
}

/* On v2 a login session's cgroup is not ours to change: ask systemd for one that is. */
static void enter_scope(char **argv)
{
    /* Without root the start fails anyway, in better words than systemd-run has. */
    if (geteuid() != 0 || !cgroup_needs_scope() || getenv("OJ_BOX_SCOPE"))
        return;
    size_t count = 0;
    while (argv[count])
        count++;
    static const char *const prefix[] = {"systemd-run", "--scope",      "--quiet",
                                         "--collect",   "--property=Delegate=yes", "--"};
    enum { PREFIX = sizeof prefix / sizeof *prefix };
    const char **all = calloc(count + PREFIX + 1, sizeof *all);
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (!all || length < 0)
        die("cannot find myself");
    self[length] = 0;
    for (size_t i = 0; i < PREFIX; i++)
        all[i] = prefix[i];
    all[PREFIX] = self;
    for (size_t i = 1; i < count; i++)
        all[PREFIX + i] = argv[i];
    setenv("OJ_BOX_SCOPE", "1", 1);
    execvp(all[0], (char *const *)all);
    die("this cgroup is not delegated to us, and systemd-run cannot be used: %s", strerror(errno));
}

/* ---- run ---------------------------------------------------------------------- */

static void print_usage(const struct answer *answer, bool json)
{
    const char *format =
        json ? "{\"exit_code\": %s, \"signal\": %s, \"limit\": \"%s\", \"cpu_us\": %llu, "
               "\"wall_us\": %llu, \"memory_bytes\": %llu, \"processes\": %llu, "
               "\"stdout_bytes\": %llu, \"stderr_bytes\": %llu}\n"
             : "oj-box: exit=%s signal=%s limit=%s cpu=%lluus wall=%lluus memory=%llu "
               "processes=%llu stdout=%llu stderr=%llu\n";
    char exit_code[16] = "null", number[16] = "null";

    if (answer->exit_code >= 0)
        snprintf(exit_code, sizeof exit_code, "%d", answer->exit_code);
    else
        snprintf(number, sizeof number, "%d", answer->signal);
    if (!json && answer->exit_code >= 0)
        strcpy(number, "-");
    if (!json && answer->exit_code < 0)
        strcpy(exit_code, "-");
    fprintf(stderr, format, exit_code, number, limit_name((enum limit_hit)answer->limit),
            (unsigned long long)answer->cpu_us, (unsigned long long)answer->wall_us,
            (unsigned long long)answer->memory_bytes, (unsigned long long)answer->processes,
            (unsigned long long)answer->stdout_bytes, (unsigned long long)answer->stderr_bytes);
}

static void want(bool parsed, const char *option)
{
    if (!parsed)
        die("--%s: not a value like 1500ms, 2s, 64M or 16", option);
}

int shell_run(int argc, char **argv)
{
    static const struct option options[] = {
        {"time", required_argument, NULL, 't'},      {"wall", required_argument, NULL, 'w'},
        {"memory", required_argument, NULL, 'm'},    {"processes", required_argument, NULL, 'n'},
        {"output", required_argument, NULL, 'o'},    {"disk", required_argument, NULL, 'd'},
        {"dir", required_argument, NULL, 'D'},       {"env", required_argument, NULL, 'e'},
        {"part", required_argument, NULL, 'p'},      {"uid", required_argument, NULL, 'u'},
        {"files", required_argument, NULL, 'f'},     {"json", no_argument, NULL, 'j'},
        {NULL, 0, NULL, 0}};
    static struct box box;
    struct message_head head = default_limits;
    struct answer answer;
    struct fault fault;
    const char *directory = ".";
    static const char *env[ARGUMENTS_MAX + 1];
    static char *parts[PARTS_MAX + 1];
    size_t envs = 0, extras = 0;
    uint64_t uid = FIRST_UID, files = FILES_DEFAULT;
    bool json = false;
    int option;

    if (argc > ARGUMENTS_MAX - 4)
        die("run: too many arguments");
    enter_scope(argv);
    env[envs++] = "PATH=/usr/local/bin:/usr/bin:/bin";
    env[envs++] = "HOME=/box";
    env[envs++] = "LANG=C.UTF-8";
    while ((option = getopt_long(argc - 1, argv + 1, "+", options, NULL)) != -1)
        switch (option) {
        case 't': want(parse_duration(optarg, &head.cpu_us), "time"); break;
        case 'w': want(parse_duration(optarg, &head.wall_us), "wall"); break;
        case 'm': want(parse_size(optarg, &head.memory_bytes), "memory"); break;
        case 'n': want(parse_size(optarg, &head.processes), "processes"); break;
        case 'o': want(parse_size(optarg, &head.output_bytes), "output"); break;
        case 'd': want(parse_size(optarg, &head.disk_bytes), "disk"); break;
        case 'f':
            want(parse_size(optarg, &files) && files >= 1 && files <= FILES_MAX, "files");
            break;
        case 'D': directory = optarg; break;
        case 'e': env[envs++] = optarg; break;
        case 'p':
            want(extras < PARTS_MAX, "part");
            parts[extras++] = optarg;
            break;
        case 'u': want(parse_size(optarg, &uid) && uid >= 1000 && uid < 2000000000, "uid"); break;
        case 'j': json = true; break;
        default: return 2;
        }
    const char *const *command = (const char *const *)argv + 1 + optind;
    if (!command[0])
        die("run: no command; see oj-box --help");
    if (!head.wall_us)
        head.wall_us = head.cpu_us * 3;
    head.files = (uint32_t)files;

    int tree = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree < 0)
        die("cannot open %s: %s", directory, strerror(errno));
    int fds[4] = {tree, 0, 1, 2};
    signal(SIGINT, SIG_IGN); /* ends the program's terminal input, not our cleaning */
    if (box_open(&box, 1, (uid_t)uid, false, parts, &fault) < 0)
        goto failed;
    int done = run_once(&box, head, command, env, fds, &answer, &fault);
    box_close(&box);
    if (done < 0)
        goto failed;
    print_usage(&answer, json);
    return answer.exit_code >= 0 ? answer.exit_code : 128 + answer.signal;

failed:
    fprintf(stderr, "oj-box: %s\n", fault.text);
    return FAILED_OURSELVES;
}

/* ---- check ----------------------------------------------------------------------- */

/* One small run that must end in one way: the proof that a limit bites here. */
struct proof {
    const char *what;
    const char *script;
    enum limit_hit limit;
    int exit_code; /* with LIMIT_NONE only */
};

static const struct proof proofs[] = {
    {"a harmless program runs", "exit 7", LIMIT_NONE, 7},
    {"cpu time is limited", "while :; do :; done", LIMIT_CPU, 0},
    {"wall time is limited", "sleep 20", LIMIT_WALL, 0},
    {"memory is limited", "x=aaaaaaaa; while :; do x=$x$x; done", LIMIT_MEMORY, 0},
    {"processes are limited",
     "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 5 & done; exit 1",
     LIMIT_PROCESSES, 0},
    {"output is limited", "cat /dev/zero", LIMIT_OUTPUT, 0},
    {"disk space is limited", "cat /dev/zero >/box/a; exit 1", LIMIT_DISK, 0},
    {"it sees no processes but its own", "set -- /proc/[0-9]*; test $# -le 2",
     LIMIT_NONE, 0},
    {"the root directory is read-only", "! touch /usr/x /etc/x /x 2>/dev/null", LIMIT_NONE, 0},
    {"there is no network", "! test -e /proc/self/net/route || "
                            "test $(wc -l </proc/self/net/route) -le 1",
     LIMIT_NONE, 0},
};

static bool prove(const struct box *box, const struct proof *proof, const int fds[4])
{
    struct message_head head = default_limits;
    const char *const argv[] = {"/bin/sh", "-c", proof->script, NULL};
    const char *const envp[] = {"PATH=/usr/bin:/bin", NULL};
    struct answer answer;
    struct fault fault;

    /* Plenty of time, for slow and crowded machines, except where time is the proof. */
    head.cpu_us = proof->limit == LIMIT_CPU ? 300000 : 20000000;
    head.wall_us = proof->limit == LIMIT_WALL ? 300000 : 60000000;
    head.memory_bytes = 32 << 20;
    head.output_bytes = 1 << 20;
    head.processes = 16;
    head.disk_bytes = 4 << 20;
    if (run_once(box, head, argv, envp, fds, &answer, &fault) < 0) {
        printf("FAILED  %s: %s\n", proof->what, fault.text);
        return false;
    }
    bool right = answer.limit == (uint32_t)proof->limit &&
                 (proof->limit != LIMIT_NONE || answer.exit_code == proof->exit_code);
    if (right)
        printf("ok      %s\n", proof->what);
    else
        printf("FAILED  %s: limit %s, exit code %d, signal %d\n", proof->what,
               limit_name((enum limit_hit)answer.limit), answer.exit_code, answer.signal);
    return right;
}

int shell_check(int argc, char **argv)
{
    static struct box box;
    struct fault fault;
    bool right = true;

    if (argc != 2)
        die("check takes no arguments");
    enter_scope(argv);
    char place[] = "/tmp/oj-box.XXXXXX";
    if (!mkdtemp(place))
        die("cannot make a directory: %s", strerror(errno));
    int tree = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (tree < 0 || nothing < 0)
        die("cannot open %s: %s", place, strerror(errno));
    if (box_open(&box, 1, FIRST_UID, false, NULL, &fault) < 0) {
        printf("FAILED  %s\n", fault.text);
        rmdir(place);
        return 1;
    }
    printf("ok      cgroup v%d accounts memory, processes and cpu time%s\n", box.home.version,
           box.home.has_swap ? ", swap included" : "; there is no swap");
    int fds[4] = {tree, nothing, nothing, nothing};
    for (size_t i = 0; i < sizeof proofs / sizeof *proofs; i++) {
        right &= prove(&box, &proofs[i], fds);
        fflush(stdout);
    }
    box_close(&box);
    rmdir(place);
    return right ? 0 : 1;
}
