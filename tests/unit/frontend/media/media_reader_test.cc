#include "frontend/media/media_reader.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool Never() { return false; }

StatusOr<std::string> Read(const MediaAccess& access, const std::string& url) {
  return MediaReader::Make(access).value()->Read(url, Never);
}

std::string Refusal(const MediaAccess& access, const std::string& url) {
  const auto bytes = Read(access, url);
  CHECK(bytes.status().code() == StatusCode::kInvalidArgument);
  return bytes.status().message();
}

TEST_CASE("data: URLs are read whatever their media type, as base64 alone") {
  CHECK(Read({}, "data:image/png;base64,QUJD").value() == "ABC");
  CHECK(Read({}, "DATA:;base64,QUI=").value() == "AB");
  CHECK(Read({}, "data:image/png;name=a.png;BASE64,QUI").value() == "AB");
  CHECK(Refusal({}, "data:image/png;base64").find("','") != std::string::npos);
  CHECK(Refusal({}, "data:text/plain,abc").find("Only base64") != std::string::npos);
  CHECK(Refusal({}, "data:;base64,QU%3D").find("not base64") != std::string::npos);
  CHECK(Refusal({}, "ftp://x/i.png").find("HTTP, data or file") != std::string::npos);
  MediaAccess access;
  access.max_bytes = 3;
  CHECK(Read(access, "data:;base64,QUJD").ok());
  CHECK(Refusal(access, "data:;base64,QUJDRA==").find("--max-image-bytes") != std::string::npos);
}

TEST_CASE("files are read below the allowed folder alone, wherever links lead") {
  const TempFolder folder;
  const std::string root = folder.path();
  fs::create_directories(root + "/open/sub");
  const auto write = [](const std::string& path, std::string_view text) {
    std::ofstream(path) << text;
  };
  write(root + "/open/a b.png", "inside");
  write(root + "/secret", "outside");
  fs::create_symlink(root + "/secret", root + "/open/link");
  fs::create_symlink(root + "/open/a b.png", root + "/open/sub/link");
  MediaAccess access;
  CHECK(Refusal(access, "file://" + root + "/open/a b.png").find("--allowed-local-media-path") !=
        std::string::npos);
  access.local_path = root + "/open/";
  const std::string base = "file://" + root + "/open/";
  CHECK(Read(access, base + "a%20b.png").value() == "inside");
  CHECK(Read(access, base + "sub/../a b.png").value() == "inside");
  CHECK(Read(access, base + "sub/link").value() == "inside");
  for (const std::string& path : {base + "../secret", base + "link", base, base + "..",
                                  "file://" + root + "/opener", std::string("file:///etc/passwd"),
                                  std::string("file://etc/passwd"), base + "%2e%2e/secret"}) {
    CAPTURE(path);
    CHECK(Refusal(access, path).find("must be a subpath") != std::string::npos);
  }
  CHECK(Read(access, base + "none").status().code() == StatusCode::kDataLoss);
  CHECK(Read(access, base + "sub").status().code() == StatusCode::kDataLoss);
  access.max_bytes = 3;
  CHECK(Refusal(access, base + "a b.png").find("--max-image-bytes") != std::string::npos);
  access.local_path = root + "/none";
  CHECK_FALSE(MediaReader::Make(access).ok());
}

TEST_CASE("URLs are fetched from allowed domains alone") {
  CHECK(Refusal({}, "http://a.example/i.png").find("--allowed-media-domains") != std::string::npos);
  MediaAccess access;
  access.domains = {"A.example", "127.0.0.1", "localhost"};
  for (const char* url : {"https://b.example/i.png", "http://xa.example/", "http://a.example.b/",
                          "http://a.example./", "http://0x7f.1/", "http://2130706433/"}) {
    CAPTURE(url);
    CHECK(Refusal(access, url).find("one of the allowed domains: ['a.example'") !=
          std::string::npos);
  }
  CHECK(Refusal(access, "http://a.example@b.example/").find("must not name a user") !=
        std::string::npos);
  CHECK(Refusal(access, "http://a.example:99999/").find("port") != std::string::npos);
  // Allowed by their names, not by their addresses.
  CHECK(Refusal(access, "http://127.0.0.1:1/").find("loopback") != std::string::npos);
  CHECK(Refusal(access, "http://localhost:1/").find("loopback") != std::string::npos);
}

TEST_CASE("allowed domains are hosts") {
  for (const char* domain :
       {"https://a.example", "a.example/x", "a.example:80", "[\"a\"]", "", "*"}) {
    MediaAccess access;
    access.domains = {"b.example", domain};
    const auto reader = MediaReader::Make(access);
    CHECK(reader.status().message().find("must be a host") != std::string::npos);
  }
  MediaAccess access;
  access.domains = {"A-b_c.example", "10.0.0.1", "::1", "2606:4700::1111"};
  CHECK(MediaReader::Make(access).ok());
}

// Answers each connection with the next text, then closes it. An empty text: keeps it open.
class Server {
 public:
  explicit Server(std::vector<std::string> replies) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    auto* const address = reinterpret_cast<sockaddr*>(&address_);
    REQUIRE(bind(fd_, address, size) == 0);
    REQUIRE(getsockname(fd_, address, &size) == 0);
    REQUIRE(listen(fd_, 8) == 0);
    thread_ = std::thread([this, replies = std::move(replies)] {
      for (const std::string& reply : replies) {
        const int peer = accept(fd_, nullptr, nullptr);
        char request[4096];
        ssize_t count = recv(peer, request, sizeof request, 0);
        send(peer, reply.data(), reply.size(), MSG_NOSIGNAL);
        while (reply.empty() && count > 0) count = recv(peer, request, sizeof request, 0);
        close(peer);
        ++num_requests_;
      }
    });
  }
  ~Server() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  Server(const Server&) = delete;

  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(ntohs(address_.sin_port)) + "/i.png";
  }
  int num_requests() const { return num_requests_; }

 private:
  int fd_;
  sockaddr_in address_ = {};
  std::atomic<int> num_requests_ = 0;
  std::thread thread_;
};

MediaAccess Loopback() {
  MediaAccess access;
  access.domains = {"127.0.0.1"};
  access.public_addresses_only = false;
  access.fetch_timeout_s = 30;
  return access;
}

constexpr char kImage[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nPNG";

TEST_CASE("a fetch ends with the bytes, or with why there are none") {
  {
    const Server server({kImage});
    CHECK(Read(Loopback(), server.url()).value() == "PNG");
  }
  {
    const Server server({"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"});
    const auto bytes = Read(Loopback(), server.url());
    CHECK(bytes.status().code() == StatusCode::kDataLoss);
    CHECK(bytes.status().message().find("HTTP 404") != std::string::npos);
  }
  {
    const Server server({"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nPNG"});
    CHECK(Read(Loopback(), server.url()).status().message().find("cut") != std::string::npos);
  }
  {
    const Server server({kImage});
    MediaAccess access = Loopback();
    access.max_bytes = 2;
    CHECK(Refusal(access, server.url()).find("--max-image-bytes") != std::string::npos);
  }
  {
    const Server server({""});
    MediaAccess access = Loopback();
    access.fetch_timeout_s = 0.01;
    const auto bytes = Read(access, server.url());
    CHECK(bytes.status().code() == StatusCode::kDataLoss);
    CHECK(bytes.status().message().find("too long") != std::string::npos);
  }
}

TEST_CASE("redirects are followed where that is allowed, and each is checked") {
  const Server target({kImage});
  const auto redirect = [](const std::string& to) {
    return "HTTP/1.1 302 Found\r\nLocation: " + to + "\r\nContent-Length: 0\r\n\r\n";
  };
  {
    const Server server({redirect(target.url())});
    const auto bytes = Read(Loopback(), server.url());
    CHECK(bytes.status().message().find("--media-url-allow-redirects") != std::string::npos);
  }
  MediaAccess access = Loopback();
  access.follows_redirects = true;
  for (const char* to : {"http://localhost:1/", "http://169.254.169.254/", "file:///etc/passwd"}) {
    CAPTURE(to);
    const Server server({redirect(to)});
    Refusal(access, server.url());
  }
  CHECK(target.num_requests() == 0);
  {
    const Server server({redirect(target.url())});
    CHECK(Read(access, server.url()).value() == "PNG");
  }
  const Server server(std::vector<std::string>(6, redirect("/again")));
  CHECK(Refusal(access, server.url()).find("more than 5 times") != std::string::npos);
}

TEST_CASE("a fetch ends when nobody waits for it, or the reader stops") {
  const Server server({"", ""});
  const auto reader = MediaReader::Make(Loopback()).value();
  std::atomic<bool> is_over = false;
  std::thread other([&] { is_over = true; });
  CHECK(reader->Read(server.url(), [&] { return is_over.load(); }).status().code() ==
        StatusCode::kCancelled);
  other.join();
  std::thread stops([&] { reader->Stop(); });
  CHECK(reader->Read(server.url(), Never).status().code() == StatusCode::kCancelled);
  stops.join();
  CHECK(reader->Read("data:;base64,QUJD", Never).status().code() == StatusCode::kCancelled);
}

}  // namespace
}  // namespace tandem
