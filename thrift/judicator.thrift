/*
 * The service between oj's judicators and everyone else: executors, gateways,
 * the `oj` command, and clients of yours in any language that Thrift knows.
 *
 * Transport: TFramedTransport over TCP (default port 7500).
 * Protocol:  TBinaryProtocol, strict. Frames above 16 MiB are refused by
 *            closing the connection.
 *
 * Stability: fields and arguments are only ever added, optional, with new
 * ids. A client compiled from an older copy of this file goes on working.
 *
 * Retrying: every call may be repeated after a lost connection or an
 * Unavailable, at this or at another judicator. `add` is made repeatable by
 * the idempotency key: set `Task.key` and a second add with the same user and
 * key returns the first id.
 *
 * Times are milliseconds since 1970-01-01 UTC. Sizes are bytes. Durations end
 * in _ms.
 */

namespace py oj.rpc
namespace cpp oj
namespace js oj
namespace java oj
namespace go oj

/* ---------------------------------------------------------------- limits */

/* Inline data above this many bytes is refused: send it as a blob. */
const i32 INLINE_BYTES = 65536
/* All inline data of one task together. */
const i32 TASK_INLINE_BYTES = 1048576
/* The largest blob. */
const i64 BLOB_BYTES = 268435456
/* The most data that one putBlob carries or one getBlob returns. */
const i32 CHUNK_BYTES = 1048576
/* The most tests of one task, files of one task, tasks of one addMany. */
const i32 MAX_TESTS = 1000
const i32 MAX_FILES = 256
const i32 MAX_TASKS = 1000
/* The longest path of a file, and each part of it. */
const i32 MAX_PATH_BYTES = 1024
const i32 MAX_NAME_BYTES = 255
/* The longest user, tag, key, and name of a test: one line that can be printed. */
const i32 MAX_WORD_BYTES = 128
/* The most tags of one task; the most words of a command, and the longest. */
const i32 MAX_TAGS = 32
const i32 MAX_ARGUMENTS = 256
const i32 MAX_ARGUMENT_BYTES = 8192
/* Priorities go from minus this to this. */
const i32 MAX_PRIORITY = 100
/* The largest page of a search. */
const i32 MAX_PAGE = 1000
/* The most ports of one `probe`. */
const i32 MAX_PROBES = 8
/* The longest wait of `wait` and `report`; a longer one is shortened. */
const i32 MAX_WAIT_MS = 60000

/* ------------------------------------------------------------ vocabulary */

/* The life of a task. `done` is true for SUCCESS and everything after it. */
enum Status {
  PENDING = 1,        /* waits for an executor */
  COMPILING = 2,
  RUNNING = 3,
  RETRYING = 4,       /* was given to an executor that was lost; waits again */
  SUCCESS = 10,       /* judged to the end; the verdict tells how it went */
  COMPILE_FAILED = 11,
  RUN_FAILED = 12,    /* at least one test was not accepted */
  CANCELLED = 13,
  INTERNAL_ERROR = 14 /* the judge failed, not the program; see `message` */
}

/* What the contestant learns, of one test and of the whole task. */
enum Verdict {
  ACCEPTED = 1,
  WRONG_ANSWER = 2,
  PRESENTATION_ERROR = 3, /* compared as EXACT: only white space differs */
  TIME_LIMIT = 4,         /* CPU time */
  WALL_LIMIT = 5,         /* idled past the wall-clock limit */
  MEMORY_LIMIT = 6,
  OUTPUT_LIMIT = 7,
  RUNTIME_ERROR = 8,      /* non-zero exit code or a signal */
  COMPILE_ERROR = 9,
  JUDGE_ERROR = 10,
  SKIPPED = 11            /* not run, because stop_on_failure was set */
}

/* How a test's output is compared with the expected output. */
enum Compare {
  EXACT = 1,  /* byte by byte; if all words are right, PRESENTATION_ERROR */
  TOKENS = 2, /* words, ignoring the amount and kind of white space */
  FLOATS = 3  /* as TOKENS; words that are numbers may differ by `tolerance`,
                 absolute or relative */
}

/* ------------------------------------------------------------------ task */

/* Some bytes: exactly one of the two is set. */
struct Data {
  1: optional binary inline_data, /* at most INLINE_BYTES */
  2: optional string digest       /* lower-case hex SHA-256 of a stored blob */
}

/* A file of the task. The name is relative, in UTF-8, without a backslash or
 * anything that cannot be printed, and no part is empty, '.', or '..'. No two
 * files of a task, source or data, have the same name, and none lies below
 * another. */
struct File {
  1: required string name,
  2: required Data data
}

/* What one step may use, above 0. Unset: the language's or the executor's
 * default. An executor that is configured to give less than was asked for gives
 * that. */
struct Limits {
  1: optional i32 cpu_ms,       /* at most an hour */
  2: optional i32 wall_ms,      /* at most two hours */
  3: optional i64 memory_bytes, /* at most 1 TiB */
  4: optional i64 output_bytes, /* of stdout and of stderr, each; at most 1 GiB */
  5: optional i32 processes,    /* at most 4096 */
  6: optional i64 disk_bytes    /* written to files; at most 16 GiB */
}

/* A command and its limits. Without a command, the language gives it. */
struct Step {
  1: optional list<string> command, /* argv; argv[0] is a path or a name in PATH */
  2: optional Limits limits
}

struct Test {
  1: optional string name,      /* default: its number from 1 */
  2: optional Data input,       /* standard input; default: empty */
  3: optional Data expected,    /* unset: any output is right */
  4: optional double weight     /* its share of the score, 0 or more; default 1 */
}

/* What `add` takes. Either a language, or at least an execute.command. */
struct Task {
  1: optional string language,
  2: optional list<File> source, /* seen by compile and by run */
  3: optional Step compile,
  4: optional Step execute,
  5: optional list<Test> tests,  /* none: one test with no input and no expectation */
  6: optional string user,       /* whose share of the cluster it uses; default "" */
  7: optional i32 priority,      /* higher goes first; default 0 */
  8: optional set<string> tags,
  9: optional string key,        /* idempotency key, unique for the user */
  10: optional Compare compare,  /* default TOKENS */
  11: optional double tolerance, /* for FLOATS; default 1e-6 */
  12: optional bool stop_on_failure, /* skip what follows the first failed test */
  13: optional list<File> data,  /* seen by run only, never by compile */
  14: optional string webhook,   /* URL that a gateway calls once the task is done */
  15: optional string webhook_token /* id of the token whose secret signs that call */
}

/* What one run of a program used and how it ended. */
struct Outcome {
  1: optional i64 cpu_ms,
  2: optional i64 wall_ms,
  3: optional i64 memory_bytes,  /* peak */
  4: optional i32 exit_code,     /* set if it exited */
  5: optional i32 signal,        /* set if a signal ended it */
  6: optional binary stdout_data, /* kept up to a limit */
  7: optional bool stdout_cut,
  8: optional binary stderr_data,
  9: optional bool stderr_cut,
  10: optional i32 processes,    /* peak */
  11: optional i64 cpu_us,       /* cpu_ms, finer */
  12: optional i64 wall_us
}

struct TestResult {
  1: optional string name,
  2: optional Verdict verdict,
  3: optional Outcome outcome,
  4: optional string message     /* for people: 'line 3: "5" is wrong'; never what was expected */
}

struct Result {
  1: optional Status status,     /* a final one */
  2: optional Verdict verdict,
  3: optional Outcome compile,   /* set if there was a compile step */
  4: optional list<TestResult> tests,
  5: optional double score,      /* weights of accepted tests over all weights, 0 to 1 */
  6: optional string message
}

/* One try to judge the task. */
struct Attempt {
  1: optional i32 number,
  2: optional string executor,
  3: optional i64 start_time,
  4: optional string ended       /* why it did not lead to a result; unset: it is under way or did */
}

/* A task as the judicators know it. Which parts are set depends on `what`. */
struct TaskInfo {
  1: required string id,
  2: required Status status,
  3: required bool done,
  4: optional Verdict verdict,
  5: optional string executor,    /* who runs it, or ran it last */
  6: optional i32 attempt,        /* the number of the last attempt; 0 before the first */
  7: optional i64 add_time,
  8: optional i64 start_time,     /* of the last attempt */
  9: optional i64 report_time,    /* when the status changed last */
  10: optional i32 tests_done,
  11: optional i32 tests_total,
  12: optional double score,
  13: optional string message,
  14: optional string language,
  15: optional string user,
  16: optional i32 priority,
  17: optional set<string> tags,
  18: optional Task task,         /* with GET_TASK */
  19: optional Result result,     /* with GET_RESULT, once done */
  20: optional list<Attempt> attempts, /* with GET_ATTEMPTS */
  21: optional string key
}

/* What `get` and `wait` return beyond the summary: a sum of these. */
const i32 GET_SUMMARY = 0
const i32 GET_TASK = 1
const i32 GET_RESULT = 2
const i32 GET_ATTEMPTS = 4
const i32 GET_ALL = 7

/* ---------------------------------------------------------------- search */

/* All that are set must hold. */
struct Conditions {
  1: optional set<string> ids,
  2: optional string user,
  3: optional set<Status> statuses,
  4: optional set<Verdict> verdicts,
  5: optional set<string> tags,      /* the task has all of these */
  6: optional i64 added_from,        /* inclusive */
  7: optional i64 added_before,      /* exclusive */
  8: optional string language,
  9: optional string executor,
  10: optional bool oldest_first,    /* default: newest first */
  11: optional bool done
}

struct Page {
  1: required list<TaskInfo> tasks,
  2: optional string cursor          /* for the next page; unset on the last */
}

/* ---------------------------------------------------------------- report */

/* An executor's description of itself. Sent when it changes, and when asked. */
struct Facts {
  1: optional map<string, string> languages, /* name -> version; those whose self-test passed */
  2: optional i32 slots,
  3: optional string version,                /* of oj */
  4: optional string address,
  5: optional string state,                  /* 'ok', 'draining', 'sick' */
  6: optional string message,                /* why it is sick */
  7: optional map<string, string> system     /* kernel, cores, memory, cgroup... */
}

/* A task that the executor has in hand. */
struct Executing {
  1: required string id,
  2: required i32 attempt,
  3: optional Status status,                 /* COMPILING or RUNNING */
  4: optional i32 tests_done
}

/* A task that the executor has finished. `incarnation` is the one that was
 * given the task, which is an older one if the executor was restarted. */
struct Completed {
  1: required string id,
  2: required i32 attempt,
  3: required string incarnation,
  4: optional Result result,
  5: optional string give_back /* set instead of result: could not judge it, and why */
}

struct Assignment {
  1: required string id,
  2: required i32 attempt,
  3: required Task task
}

struct TaskRef {
  1: required string id,
  2: required i32 attempt
}

/* One of the processes that report under an executor's name. */
struct Process {
  1: required string incarnation,
  2: optional string address,         /* the host that its reports come from */
  3: optional i64 since               /* when it began to ask for the name */
}

struct ReportReply {
  1: required list<TaskRef> cancel,   /* stop these; their results are not wanted */
  2: required list<Assignment> assign,
  3: required list<TaskRef> acknowledged, /* of `complete`: recorded or not wanted; forget them */
  4: optional bool drained,           /* an operator drained this executor */
  5: optional bool want_facts,        /* send facts with the next report */
  6: optional i32 lease_ms,           /* report again well within this time while executing */
  7: optional Process holder          /* another process has this executor's name: stop all, and
                                         ask every two seconds whether it is gone */
}

/* --------------------------------------------------------------- cluster */

struct ExecutorInfo {
  1: required string name,
  2: optional string incarnation,
  3: optional Facts facts,
  4: optional i64 report_time,
  5: optional i32 executing,
  6: optional bool drained,
  7: optional bool silent,            /* its lease ran out */
  8: optional string address,         /* the host that its reports come from */
  9: optional list<Process> rivals    /* other processes that report under its name, and are
                                         refused */
}

struct JudicatorInfo {
  1: required string name,
  2: required string address,
  3: optional bool leader,
  4: optional bool healthy,           /* it answered just now; set by cluster() only */
  5: optional string version          /* of oj, as it answered; set by cluster() only */
}

/* A member of etcd, which holds who is alive and who leads. */
struct EtcdMember {
  1: required string name,            /* of its node; an address where that is not known */
  2: optional string address,         /* HOST:PORT for clients; unset before its first start */
  3: optional bool healthy,           /* it answered just now and knows a leader */
  4: optional bool leader,
  5: optional bool learner,           /* has no vote yet: it is catching up */
  6: optional string message          /* why it is not healthy */
}

/* A member of the database's replica set. */
struct DatabaseMember {
  1: required string name,            /* of its node; the host where that is not known */
  2: required string address,         /* HOST:PORT */
  3: optional string state,           /* 'primary', 'secondary', 'syncing', 'recovering',
                                         'starting', 'rolling back', 'removed', 'down',
                                         'unknown' */
  4: optional bool healthy,           /* primary, or secondary and in touch with the others */
  5: optional bool voter,
  6: optional i64 lag_ms,             /* how far it is behind the primary */
  7: optional string message          /* why it is not healthy */
}

/* A gateway, as it announces itself. */
struct GatewayInfo {
  1: required string name,
  2: optional string address,         /* HOST:PORT that it listens on */
  3: optional string version,         /* of oj */
  4: optional i64 report_time,        /* when it said last that it serves; set by cluster() only */
  5: optional bool silent,            /* it has not said so for 20 s; set by cluster() only */
  6: optional string process,         /* random, of this start of it; not told by cluster() */
  7: optional list<string> places     /* where processes of this name are, if there are several
                                         at once; set by cluster() only */
}

/* The cluster as one judicator sees it now. What does not answer within a second
 * is listed as it was known last, and as not healthy. */
struct Cluster {
  1: required list<EtcdMember> etcd,
  2: required list<DatabaseMember> database,
  3: required list<JudicatorInfo> judicators,
  4: required list<string> troubles,  /* for people: what is degraded, and what to do about
                                         it; the worst first; empty when all is well */
  5: optional string seen_from,       /* the name of the judicator that answers */
  6: optional list<GatewayInfo> gateways /* those that have announced themselves within an hour */
}

struct Stats {
  1: required map<Status, i64> by_status,
  2: optional i64 queue,              /* pending and retrying */
  3: optional i64 oldest_pending_ms,  /* age of the oldest that waits */
  4: optional map<Verdict, i64> by_verdict,
  5: optional i64 executors,
  6: optional i64 slots,
  7: optional i64 executing
}

/* ---------------------------------------------------------------- events */

/* A task was added, moved on, or ended. */
struct TaskEvent {
  1: required string cursor,          /* goes on after this event */
  2: required string id,
  3: optional Status status,
  4: optional Verdict verdict,
  5: optional i32 tests_done,
  6: optional i32 tests_total,
  7: optional string user,
  8: optional string language,
  9: optional i64 time,
  10: optional string executor,
  11: optional i32 attempt,
  12: optional double score
}

struct Events {
  1: required list<TaskEvent> events, /* in the order in which they happened */
  2: required string cursor,          /* for the next call, at any judicator */
  3: optional bool gap                /* some may be missing before these: look at what you
                                         watch anew */
}

/* --------------------------------------------------------------- history */

/* What happened in one minute. */
struct Minute {
  1: required i64 time,               /* its begin */
  2: optional i64 added,
  3: optional map<Status, i64> ended,
  4: optional map<Verdict, i64> verdicts,
  /* Histograms of ended tasks: how long they waited before their last attempt began, and how long
   * that took. Entry i counts those below 2^i ms and not below 2^(i-1) ms; the last has the rest. */
  5: optional list<i64> waiting,
  6: optional list<i64> judging
}
const i32 HISTOGRAM_STEPS = 24

/* ---------------------------------------------------------------- tokens */

/* Who may use a gateway, and for what. The secret itself is known to its owner alone. */
struct Token {
  1: optional string id,              /* set by the judicator */
  2: optional string name,            /* for people: 'course site' */
  3: optional string user,            /* whose tasks are added with it */
  4: optional set<string> roles,      /* of 'submit', 'read', 'admin' */
  5: optional i32 quota,              /* tasks an hour; unset: no limit */
  6: optional i64 made,
  7: optional i64 expires,            /* unset: never */
  8: optional string parent,          /* a session's: the token that it was opened with */
  9: optional string webhook_secret   /* signs calls of webhooks; only told by findToken and
                                         claimHooks */
}

struct Quota {
  1: required bool allowed,
  2: optional i32 left,               /* unset: no limit */
  3: optional i64 reset_ms,           /* until it is full again */
  4: optional i64 left_bytes          /* of store() */
}

/* A call that is due to a task's webhook. */
struct Hook {
  1: required TaskInfo task,
  2: required string url,
  3: required i32 attempt,            /* from 1 */
  4: optional string secret           /* unset: the token is gone, and the call unsigned */
}

/* One port of the caller's machine, tried from here. */
struct Reached {
  1: required i32 port,
  2: required bool connected,
  3: optional bool answered,          /* and what listens there said the word */
  4: optional string problem          /* for people, where not connected: 'no answer in 2.5 s' */
}

struct Probe {
  1: required string address,         /* the caller's, as it is seen from here */
  2: required i64 time,               /* by this judicator's clock, when the call came in */
  3: required list<Reached> ports     /* in the order in which they were asked for */
}

struct Version {
  1: required string oj,              /* package version of the judicator */
  2: required i32 protocol            /* raised when calls or fields are added */
}

/* ------------------------------------------------------------ exceptions
 *
 * Thrift's compiler makes exceptions immutable in Python; but Python itself
 * sets attributes of exceptions (__traceback__, as in contextlib), and would
 * fail with a TypeError instead. */

/* The request is wrong and will be wrong again. */
exception InvalidRequest {
  1: required string message,
  2: optional string field            /* the offending one: 'tests[2].input.digest' */
} (python.immutable = "false")

exception NotFound {
  1: required string message,
  2: optional string id
} (python.immutable = "false")

exception TooLarge {
  1: required string message,
  2: optional string field,
  3: optional i64 limit_bytes
} (python.immutable = "false")

/* Not now: try again, here or at another judicator. */
exception Unavailable {
  1: required string message,
  2: optional i32 retry_ms
} (python.immutable = "false")

/* --------------------------------------------------------------- service */

service Judicator {
  /* Answers at once if this judicator can serve (database and etcd reachable). */
  void ping() throws (1: Unavailable unavailable)

  Version version()

  /* Accepts a task and returns its id. Once this returned, the task is on disk
   * on a majority of the judicators and will end with a result. */
  string add(1: Task task)
    throws (1: InvalidRequest invalid, 2: TooLarge large, 3: Unavailable unavailable)

  /* Accepts all or none; ids in the same order. */
  list<string> addMany(1: list<Task> tasks)
    throws (1: InvalidRequest invalid, 2: TooLarge large, 3: Unavailable unavailable)

  /* Ends a task that is not done. Returns true if this call cancelled it, false
   * if it was done already. */
  bool cancel(1: string id)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)

  /* `what`: a sum of GET_*. */
  TaskInfo get(1: string id, 2: i32 what)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)

  /* As get, but answers only when the status is not (any longer) known_status
   * (where a client can leave that unset, no change but the last one counts),
   * or, if known_tests_done is given and not negative, when more tests are
   * done, or when the task is done, or after wait_ms. */
  TaskInfo wait(1: string id, 2: Status known_status, 3: i32 wait_ms, 4: i32 what,
                5: i32 known_tests_done = -1)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)

  /* One page of summaries. `cursor` is that of the page before, or empty. */
  Page search(1: Conditions conditions, 2: string cursor, 3: i32 limit)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  /* Those of the digests that are stored. A blob that no task names is removed
   * after a day; asking gives it another one. */
  set<string> hasBlobs(1: set<string> digests)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  /* One piece of a blob, from offset 0 on, in order, all to one judicator; with
   * `last` the blob is checked against its digest and stored. Returns the next
   * offset expected, so that an interrupted sender knows where to go on (0:
   * from the start). A blob that is stored already returns its length. */
  i64 putBlob(1: string digest, 2: i64 offset, 3: binary data, 4: bool last)
    throws (1: InvalidRequest invalid, 2: TooLarge large, 3: Unavailable unavailable)

  /* At most `length` (and CHUNK_BYTES) bytes from `offset`; empty past the end. */
  binary getBlob(1: string digest, 2: i64 offset, 3: i32 length)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)

  /* An executor's report; see docs/protocol.md.
   * `incarnation` is INSTALLATION.RANDOM: a new one of the same installation is
   * a restart; one of another is refused while the executor is alive.
   * `number` counts the reports of this incarnation from 1. `settled` says that
   * each report up to that number was answered or given up, so that a task
   * assigned by one of those and not listed here is not in hand. */
  ReportReply report(1: string executor, 2: string incarnation,
                     3: list<Completed> complete, 4: list<Executing> executing,
                     5: i32 vacant, 6: Facts facts, 7: i32 wait_ms,
                     8: i64 number, 9: i64 settled)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  list<ExecutorInfo> executors() throws (1: Unavailable unavailable)
  list<JudicatorInfo> judicators() throws (1: Unavailable unavailable)
  Stats stats() throws (1: Unavailable unavailable)

  /* Who belongs to the cluster and how each of them fares. Answers within two
   * seconds also when etcd or the database is away: that is what it is for.
   * (Since protocol 2: an older judicator answers with Thrift's own exception
   * UNKNOWN_METHOD.) */
  Cluster cluster() throws (1: Unavailable unavailable)

  /* What happened to tasks after `cursor` (empty: from now on), at most `limit`
   * events; waits up to wait_ms for the first. Cursors hold across judicators
   * and for as long as the database keeps its log. (Since protocol 3, as are
   * the calls that follow up to `drain`.) */
  Events events(1: string cursor, 2: i32 wait_ms, 3: i32 limit)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  /* The minutes from `since` on, oldest first; those in which nothing happened
   * are left out. At most a day's. */
  list<Minute> history(1: i64 since)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  /* `hash` is the lower-case hex SHA-256 of the secret, which never leaves its
   * maker. */
  Token addToken(1: Token token, 2: string hash)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)
  Token findToken(1: string hash)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)
  list<Token> tokens() throws (1: Unavailable unavailable)
  /* With all sessions that were opened with it. */
  void removeToken(1: string id)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)
  /* Takes `tasks` from what the token may still add in this hour. */
  Quota spend(1: string id, 2: i32 tasks)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)

  /* Counts `bytes` that this user has stored today, if that is no more than
   * `most_bytes` in all. (Since protocol 4.) */
  Quota store(1: string user, 2: i64 bytes, 3: i64 most_bytes)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  /* Webhooks of ended tasks that are due; each is the caller's for a minute. None of tasks of these
   * users, nor of receivers (SCHEME://HOST, with the port if there is one), of which the caller has
   * enough under way. */
  list<Hook> claimHooks(1: i32 limit, 2: list<string> busy_users, 3: list<string> busy_receivers)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)
  /* How the call went; one that failed is due again later, ten times at most. */
  void finishHook(1: string id, 2: i32 attempt, 3: bool delivered, 4: string message)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  /* A gateway says every five seconds that it serves, and once that it is
   * leaving. `oj remove` says the latter for one that is gone for good; one
   * that serves after all is listed again. (Since protocol 4.) */
  void announce(1: GatewayInfo gateway, 2: bool leaving)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  /* Whether this judicator reaches the machine that calls: it connects to each
   * of at most MAX_PROBES ports there, and reads what is said first, which is
   * the `word` (at most MAX_WORD_BYTES) if the caller itself listens and says
   * it. No other machine is ever tried, nothing is sent, and of what was read
   * only the comparison is told. Answers within five seconds; Unavailable when
   * asked too often. (Since protocol 4.) */
  Probe probe(1: list<i32> ports, 2: string word)
    throws (1: InvalidRequest invalid, 2: Unavailable unavailable)

  /* Takes an executor out of service (it finishes what it runs) or back in. */
  void drain(1: string executor, 2: bool on)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)

  /* Takes an executor that is gone for good off the list, drained or not; else a
   * silent one is listed for an hour. One that reports again is listed again.
   * (Since protocol 2.) */
  void forget(1: string executor)
    throws (1: InvalidRequest invalid, 2: NotFound missing, 3: Unavailable unavailable)
}
