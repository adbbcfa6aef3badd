#include "frontend/web/web_url.h"

#include <string>

#include "frontend/web/web_proxy.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::string Resolved(const std::string& base, const std::string& location) {
  const StatusOr<WebUrl> url = ResolveLocation(*ParseWebUrl(base), location);
  return url.ok() ? url->Text() : "refused";
}

TEST_CASE("web URL: parts") {
  const WebUrl url = *ParseWebUrl("https://me:p%40ss@[::1]:8443/a/b?c=d#e");
  CHECK(url.is_tls);
  CHECK(url.user == "me:p@ss");
  CHECK(url.host == "::1");
  CHECK(url.port == "8443");
  CHECK(url.target == "/a/b?c=d");
  CHECK(url.Origin() == "https://[::1]:8443");
  CHECK(ParseWebUrl("http://host")->Text() == "http://host/");
  CHECK(ParseWebUrl("http://[fe80::1%eth0]/")->Text() == "http://[fe80::1%eth0]/");
  CHECK(ParseWebUrl("HTTPS://host:443?x")->Text() == "https://host/?x");
  for (const char* bad : {"", "host", "ftp://host", "http://", "http://host:0", "http://host:70000",
                          "http://ho st", "http://host/\r\nX: y", "http://[::1", "http://[::1]x",
                          "http://[]", "http://[a]", "http://[[a]", "http://a[b]", "http://a\"b"}) {
    CAPTURE(bad);
    CHECK_FALSE(ParseWebUrl(bad).ok());
  }
}

TEST_CASE("web URL: where a redirect leads") {
  CHECK(Resolved("https://h/a/b?c", "/d") == "https://h/d");
  CHECK(Resolved("https://h/a/b?c/d", "e?f") == "https://h/a/e?f");
  CHECK(Resolved("https://h/a", "//other:1/x") == "https://other:1/x");
  CHECK(Resolved("https://h/a", "http://other/x?u=https://y") == "http://other/x?u=https://y");
  CHECK(Resolved("https://h/a", "x?u=https://y") == "https://h/x?u=https://y");
  CHECK(Resolved("https://h/a", "") == "refused");
  CHECK(Resolved("https://h/a", "javascript:x") == "refused");
}

TEST_CASE("web URL: what a path needs escaped") {
  CHECK(PercentEncode("a b/c?d#e%", "/") == "a%20b/c%3Fd%23e%25");
  CHECK(PercentEncode("refs/pr/1") == "refs%2Fpr%2F1");
  CHECK(PercentEncode("\xC3\xA9") == "%C3%A9");
}

TEST_CASE("web proxy: hosts that NO_PROXY names") {
  const WebUrl url = *ParseWebUrl("https://cdn.hub.example:8443/x");
  for (const char* list : {"*", "hub.example", ".hub.example", "*.hub.example",
                           "a, CDN.hub.example ", "cdn.hub.example:8443"}) {
    CAPTURE(list);
    CHECK(IsInNoProxy(list, url));
  }
  for (const char* list :
       {"", ",", "ub.example", "example.org", "cdn.hub.example:443", "x.cdn.hub.example"}) {
    CAPTURE(list);
    CHECK_FALSE(IsInNoProxy(list, url));
  }
}

}  // namespace
}  // namespace tandem
