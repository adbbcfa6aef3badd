#include "grammar/compiler/crash_report.h"

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
#include <new>

#include "grammar/protocol.h"

namespace tandem {
namespace {

int report_socket = -1;
const char* reported_thing = "";

// Only calls that are allowed in a signal handler.
[[noreturn]] void EndWith(const char* reason) {
  char text[256];
  size_t size = 0;
  text[size++] = static_cast<char>(ReplyKind::kError);
  for (const char* part : {reported_thing, reason}) {
    for (; *part != '\0' && size < sizeof text; ++part) text[size++] = *part;
  }
  send(report_socket, text, size, MSG_NOSIGNAL);
  _exit(1);
}

void OnSignal(int signal_number) {
  if (signal_number == SIGPROF) EndWith(" takes too much CPU time");
  EndWith(" makes the grammar compiler crash");
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

void CrashReport::Install(int socket, const char* what) {
  report_socket = socket;
  reported_thing = what;
  UseOtherStack();
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (const int signal_number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGPROF}) {
    sigaction(signal_number, &action, nullptr);
  }
  std::set_new_handler(OnNoMemory);
}

void CrashReport::LimitCpuTime(int limit_ms) {
  itimerval timer = {};
  timer.it_value.tv_sec = limit_ms / 1000;
  timer.it_value.tv_usec = limit_ms % 1000 * 1000;
  setitimer(ITIMER_PROF, &timer, nullptr);
}

void CrashReport::LimitMemory(int64_t more_bytes) {
  if (kCanLimitMemory) {
    SetLimit(RLIMIT_AS, static_cast<rlim_t>(AddressSpaceBytes() + more_bytes));
  }
  SetLimit(RLIMIT_FSIZE, 0);
  SetLimit(RLIMIT_CORE, 0);
}

}  // namespace tandem
