// stream_load PORT STREAMS TOKENS [MODEL]: opens STREAMS connections, asks for one streamed
// completion of TOKENS tokens on each, and prints one line of JSON: seconds, events, the gaps
// between a stream's events (ms, median and p99). An epoll loop with no parsing beyond counting
// events, so that the client uses as little as possible of the machine it shares with the server.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"

namespace {

using tandem::SystemClock;

constexpr std::string_view kEvent = "data: {";
constexpr std::string_view kDone = "data: [DONE]";

struct Stream {
  int fd = -1;
  std::string tail;  // the last bytes read, shorter than kDone: an event may be cut anywhere
  double last_event = 0;
  bool done = false;
};

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    std::perror("connect");
    std::exit(1);
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

size_t CountEvents(std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(kEvent); at != text.npos; at = text.find(kEvent, at + 1)) ++count;
  return count;
}

// Reads what has arrived; true when the stream has ended.
bool Feed(Stream& stream, std::string_view bytes, double now, size_t* events,
          std::vector<double>* gaps) {
  const std::string text = stream.tail + std::string(bytes);
  const size_t fresh = CountEvents(text) - CountEvents(stream.tail);
  if (fresh > 0) {
    if (stream.last_event > 0) gaps->push_back(now - stream.last_event);
    stream.last_event = now;
    *events += fresh;
  }
  if (text.find(kDone) != text.npos) return true;
  stream.tail = text.substr(text.size() - std::min(text.size(), kDone.size() - 1));
  return false;
}

double Percentile(const std::vector<double>& sorted, double p) {
  return sorted.empty() ? 0
                        : sorted[static_cast<size_t>(p * static_cast<double>(sorted.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: stream_load PORT STREAMS TOKENS [MODEL]\n");
    return 2;
  }
  const int port = std::atoi(argv[1]), num_streams = std::atoi(argv[2]),
            num_tokens = std::atoi(argv[3]);
  const std::string model = argc > 4 ? argv[4] : "m";
  const std::string body =
      R"({"model":")" + model + R"(","prompt":[40,41,42,43,44,45,46,47],"max_tokens":)" +
      std::to_string(num_tokens) + R"(,"ignore_eos":true,"temperature":0,"stream":true})";
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;

  const SystemClock clock;
  const int poller = epoll_create1(0);
  std::vector<Stream> streams(static_cast<size_t>(num_streams));
  for (Stream& stream : streams) {
    stream.fd = Connect(port);
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.ptr = &stream;
    epoll_ctl(poller, EPOLL_CTL_ADD, stream.fd, &interest);
  }
  const double begin = clock.Monotonic();
  for (const Stream& stream : streams) {
    if (send(stream.fd, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size())) {
      std::perror("send");
      return 1;
    }
  }

  size_t events = 0;
  int open = num_streams;
  std::vector<double> gaps;
  std::vector<char> buffer(1 << 16);
  while (open > 0) {
    epoll_event ready[256];
    const int count = epoll_wait(poller, ready, 256, 20000);
    if (count == 0) {
      std::fprintf(stderr, "nothing arrived for 20 s, %d streams still open\n", open);
      return 1;
    }
    for (int i = 0; i < count; ++i) {
      Stream& stream = *static_cast<Stream*>(ready[i].data.ptr);
      const ssize_t got = recv(stream.fd, buffer.data(), buffer.size(), 0);
      if (got <= 0 && !stream.done) {
        std::fprintf(stderr, "a stream was closed early\n");
        return 1;
      }
      if (got <= 0 || stream.done) {
        epoll_ctl(poller, EPOLL_CTL_DEL, stream.fd, nullptr);
        continue;
      }
      if (Feed(stream, {buffer.data(), static_cast<size_t>(got)}, clock.Monotonic(), &events,
               &gaps)) {
        stream.done = true;
        --open;
      }
    }
  }
  const double seconds = clock.Monotonic() - begin;
  for (const Stream& stream : streams) close(stream.fd);
  std::sort(gaps.begin(), gaps.end());
  std::printf("{\"seconds\": %.3f, \"events\": %zu, \"gap_ms\": [%.2f, %.2f]}\n", seconds, events,
              1e3 * Percentile(gaps, 0.5), 1e3 * Percentile(gaps, 0.99));
  return 0;
}
