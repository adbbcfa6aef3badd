#include "common/forking/crash_report.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

#include "common/forking/job_reply.h"

namespace tandem {
namespace {

int report_socket = -1;
const char* reported_thing = "";
const char* reporting_program = "";
const char* cpu_time_advice = "";
volatile sig_atomic_t watches_steps = 0;
constexpr sig_atomic_t kStepNumbers = 0xffffff;  // they begin again after that many
// Odd while a step runs, even between two.
volatile sig_atomic_t step_number = 0;
volatile sig_atomic_t seen_step_number = 0;  // when the timer last went off

// Only calls that are allowed in a signal handler.
[[noreturn]] void EndWith(const char* does, const char* object = "", const char* rest = "") {
  char text[256];
  size_t size = 0;
  text[size++] = static_cast<char>(ReplyKind::kError);
  for (const char* part : {reported_thing, does, object, rest}) {
    for (; *part != '\0' && size < sizeof text; ++part) text[size++] = *part;
  }
  send(report_socket, text, size, MSG_NOSIGNAL);
  _exit(1);
}

void OnSignal(int) { EndWith(" makes ", reporting_program, " crash"); }

void OnTimer(int) {
  const sig_atomic_t number = step_number;
  const bool is_late = number % 2 != 0 && number == seen_step_number;
  if (watches_steps == 0 || is_late) {
    EndWith(" takes too much CPU time", watches_steps == 0 ? cpu_time_advice : "");
  }
  seen_step_number = number;
}

void OnAlarm(int) { EndWith(" takes too long"); }

void Handle(std::initializer_list<int> signal_numbers, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (const int signal_number : signal_numbers) sigaction(signal_number, &action, nullptr);
}

void StartTimer(decltype(ITIMER_PROF) clock, int first_ms, int interval_ms) {
  const auto after = [](int ms) { return timeval{ms / 1000, ms % 1000 * 1000}; };
  const itimerval timer = {.it_interval = after(interval_ms), .it_value = after(first_ms)};
  setitimer(clock, &timer, nullptr);
}

void OnNoMemory() { EndWith(" needs too much memory"); }

// Deep recursion ends on a full stack, where a handler needs another one.
void UseOtherStack() {
  static std::array<char, size_t{64} << 10> other;
  stack_t stack = {};
  stack.ss_sp = other.data();
  stack.ss_size = other.size();
  sigaltstack(&stack, nullptr);
}

void SetLimit(decltype(RLIMIT_AS) resource, rlim_t limit) {
  const rlimit both = {limit, limit};
  setrlimit(resource, &both);
}

int64_t AddressSpaceBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long pages = 0;
  if (std::fscanf(file, "%lld", &pages) != 1) pages = 0;
  std::fclose(file);
  return int64_t{pages} * sysconf(_SC_PAGESIZE);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCanLimitMemory = false;  // their shadow memory is terabytes of addresses
#else
constexpr bool kCanLimitMemory = true;
#endif

}  // namespace

void CrashReport::Install(int socket, const char* what, const char* program) {
  report_socket = socket;
  reported_thing = what;
  reporting_program = program;
  UseOtherStack();
  Handle({SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}, OnSignal);
  Handle({SIGPROF}, OnTimer);
  Handle({SIGALRM}, OnAlarm);
  std::set_new_handler(OnNoMemory);
}

void CrashReport::LimitCpuTime(int limit_ms, const char* advice) {
  cpu_time_advice = advice;
  StartTimer(ITIMER_PROF, limit_ms, 0);
}

void CrashReport::LimitWallTime(int limit_ms) { StartTimer(ITIMER_REAL, limit_ms, 0); }

void CrashReport::WatchSteps(int limit_ms) {
  watches_steps = 1;
  StartTimer(ITIMER_PROF, limit_ms, limit_ms);
}

void CrashReport::BeginStep() { step_number = (step_number + 1) & kStepNumbers; }

void CrashReport::EndStep() { step_number = (step_number + 1) & kStepNumbers; }

void CrashReport::LimitMemory(int64_t more_bytes, int64_t file_bytes) {
  if (kCanLimitMemory) {
    SetLimit(RLIMIT_AS, static_cast<rlim_t>(AddressSpaceBytes() + more_bytes));
  }
  SetLimit(RLIMIT_FSIZE, static_cast<rlim_t>(file_bytes));
  SetLimit(RLIMIT_CORE, 0);
}

}  // namespace tandem
