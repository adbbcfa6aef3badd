#include "deploy/cli/top/top.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "common/clock.h"
#include "common/exit_status.h"
#include "deploy/cli/http_client.h"
#include "deploy/cli/report_failure.h"
#include "deploy/cli/top/history.h"
#include "deploy/cli/top/screen.h"
#include "deploy/cli/top/server_state.h"
#include "deploy/cli/top/terminal.h"

namespace tandem {
namespace {

constexpr double kTimeoutSeconds = 5;
constexpr std::string_view kAbout =
    "tandem top [flags]: what a running server does now: requests, latencies, engines. q ends it";

StatusOr<std::string> Fetch(const HttpClient& client, std::string_view path) {
  StatusOr<HttpReply> reply = client.Get(path);
  RETURN_IF_ERROR(reply.status());
  switch (reply->status) {
    case 200:
      return std::move(reply->body);
    case 401:
      return UnavailableError("this server needs an API key: --api-key or TANDEM_API_KEY");
    case 404:
      return UnavailableError("this server has no " + std::string(path) +
                              "; it has one with --enable-dashboard");
    default:
      return UnavailableError(std::string(path) + ": HTTP " + std::to_string(reply->status));
  }
}

// What is known of the server, kept while it does not respond.
class Watch {
 public:
  Watch(const TopConfig& config, HttpClient client) : config_(config), client_(std::move(client)) {}

  Status Look() {
    ASSIGN_OR_RETURN(const std::string metrics, Fetch(client_, "/metrics"));
    ASSIGN_OR_RETURN(const std::string json, Fetch(client_, "/dashboard/state"));
    ASSIGN_OR_RETURN(DashboardState state, ParseDashboardState(json));
    history_.Add(ParseMetrics(metrics, clock_.Monotonic()), state.uptime_s);
    state_ = std::move(state);
    return OkStatus();
  }

  std::vector<ScreenLine> Page(const Status& last_look) const {
    const std::string problem = last_look.ok() ? "" : last_look.message() + "; trying again";
    return DrawScreen(config_.url, state_ ? &*state_ : nullptr, history_, problem);
  }

 private:
  const TopConfig& config_;
  HttpClient client_;
  SystemClock clock_;
  History history_;
  std::optional<DashboardState> state_;
};

void Print(const std::vector<ScreenLine>& lines) {
  constexpr size_t kMaxWidth = 1000;
  for (const ScreenLine& line : lines) {
    std::string text = FitLine(line.text, kMaxWidth);
    text.erase(text.find_last_not_of(' ') + 1);
    std::printf("%s\n", text.c_str());
  }
  std::fflush(stdout);
}

// Until the interval has passed or a signal has come; mask: as of HttpTimeouts.
void Pause(double seconds, const sigset_t* mask) {
  timespec time = {};
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_nsec = static_cast<int64_t>((seconds - std::floor(seconds)) * 1e9);
  ppoll(nullptr, 0, &time, mask);
}

// Two looks, because a rate needs two.
int PrintOnce(double interval, Watch& watch) {
  Status status = watch.Look();
  if (status.ok()) {
    Pause(interval, nullptr);
    status = watch.Look();
  }
  if (status.ok()) {
    Print(watch.Page(status));
    return kExitOk;
  }
  std::fprintf(stderr, "tandem top: %s\n", FitLine(status.message(), 1000).c_str());
  return kExitFailed;
}

int PrintAlways(double interval, Watch& watch) {
  while (std::ferror(stdout) == 0) {
    Print(watch.Page(watch.Look()));
    std::printf("\n");
    Pause(interval, nullptr);
  }
  return kExitFailed;
}

int ShowAlways(double interval, const sigset_t* mask, Watch& watch) {
  const char* no_color = std::getenv("NO_COLOR");
  const Terminal terminal(STDOUT_FILENO, no_color == nullptr || *no_color == '\0');
  Status last_look;
  terminal.Show(watch.Page(last_look));
  while (!terminal.should_end()) {
    const Status look = watch.Look();
    // Interrupted by a new size: the page is drawn with what is known.
    if (look.code() != StatusCode::kCancelled) last_look = look;
    if (terminal.should_end()) break;
    terminal.Show(watch.Page(last_look));
    Pause(interval, mask);
    if (!terminal.should_end()) terminal.Show(watch.Page(last_look));
  }
  return kExitOk;
}

}  // namespace

std::vector<Flag> TopFlags(TopConfig& config) {
  return {{"url", &config.url, "Server's URL: http://HOST:PORT or unix:/path/of/socket"},
          {"api-key",
           &config.api_key,
           "Key sent as a bearer token",
           {.env = "API_KEY", .secret = true}},
          {"interval", &config.interval, "Seconds between looks", {.min = 0.1, .max = 3600}},
          {"once", &config.once, "Print one page as plain text, after one interval, and end"}};
}

int RunTop(const std::vector<std::string>& args) {
  TopConfig config;
  const std::vector<Flag> flags = TopFlags(config);
  const StatusOr<FlagOutcome> parsed = ParseFlags(flags, args, kAbout);
  if (parsed.ok() && *parsed == FlagOutcome::kHelpShown) return kExitOk;
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  const HttpTimeouts timeouts = {
      .connect_s = kTimeoutSeconds, .silence_s = kTimeoutSeconds, .wait_mask = &mask};
  StatusOr<HttpClient> client =
      parsed.ok() ? HttpClient::ForUrl(config.url, config.api_key, timeouts) : parsed.status();
  if (!client.ok()) return ReportFailure("top", client.status(), kExitBadFlags);
  HideSecretVariables(flags);
  Watch watch(config, *std::move(client));
  if (config.once) return PrintOnce(config.interval, watch);
  if (isatty(STDOUT_FILENO) == 0) return PrintAlways(config.interval, watch);
  return ShowAlways(config.interval, &mask, watch);
}

}  // namespace tandem
