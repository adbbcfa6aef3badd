#include "deploy/cli/top/terminal.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace tandem {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l";  // screen, cursor, wrapping
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";

volatile sig_atomic_t end_wanted = 0;
constexpr int kEndSignals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};

void Write(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = write(fd, text.data(), text.size());
    if (size < 0 && errno != EINTR) return;  // a terminal that is gone sends SIGHUP
    if (size > 0) text.remove_prefix(static_cast<size_t>(size));
  }
}

std::string_view StyleCode(ScreenLine::Style style, bool colors) {
  switch (style) {
    case ScreenLine::Style::kTitle:
      return "\x1b[1m";
    case ScreenLine::Style::kHeading:
      return "\x1b[7m";
    case ScreenLine::Style::kProblem:
      return colors ? "\x1b[1;31m" : "\x1b[1m";
    case ScreenLine::Style::kPlain:
      return "";
  }
  return "";
}

void Handle(int signal_number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;  // no SA_RESTART: a wait returns
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

Terminal::Terminal(int fd, bool colors) : fd_(fd), colors_(colors), modes_(sizeof(termios)) {
  sigset_t block;
  sigemptyset(&block);
  for (const int each : kEndSignals) {
    Handle(each, [](int) { end_wanted = 1; });
    sigaddset(&block, each);
  }
  Handle(SIGWINCH, [](int) {});
  sigaddset(&block, SIGWINCH);
  sigprocmask(SIG_BLOCK, &block, &signals_);
  termios modes;
  has_modes_ = tcgetattr(fd_, &modes) == 0;
  if (has_modes_) {
    std::memcpy(modes_.data(), &modes, sizeof modes);
    modes.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
    modes.c_lflag |= ISIG;
    modes.c_cc[VQUIT] = modes.c_cc[VINTR];
    modes.c_cc[VINTR] = 'q';
    modes.c_cc[VSUSP] = _POSIX_VDISABLE;  // the shell would get this screen
    tcsetattr(fd_, TCSADRAIN, &modes);
  }
  Write(fd_, kEnter);
}

Terminal::~Terminal() {
  Write(fd_, kLeave);
  sigprocmask(SIG_SETMASK, &signals_, nullptr);
  if (!has_modes_) return;
  termios modes;
  std::memcpy(&modes, modes_.data(), sizeof modes);
  tcsetattr(fd_, TCSAFLUSH, &modes);
}

void Terminal::Show(const std::vector<ScreenLine>& lines) const {
  winsize size = {};
  ioctl(fd_, TIOCGWINSZ, &size);
  const size_t width = size.ws_col > 0 ? size.ws_col : 80;
  const size_t height = size.ws_row > 0 ? size.ws_row : 24;
  std::string page = "\x1b[H";
  for (size_t i = 0; i < lines.size() && i < height; ++i) {
    if (i > 0) page += "\r\n";
    page += StyleCode(lines[i].style, colors_);
    page += FitLine(lines[i].text, width);
    page += "\x1b[0m\x1b[K";
  }
  page += "\x1b[J";
  Write(fd_, page);
}

bool Terminal::should_end() const { return end_wanted != 0; }

}  // namespace tandem
