// The bytes of an HTTP client: whole, byte by byte or in pieces, they become the same requests, a
// 4xx, or wait for more.

#include <string>

#include "common/check.h"
#include "frontend/http/request_reader.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

// A text that shows all that was read of one request.
std::string Reading(std::string_view bytes, size_t piece_bytes) {
  ServerLimits limits;
  limits.header_bytes = 2000;
  limits.num_headers = 16;
  limits.body_bytes = 1000;
  RequestReader reader(limits);
  std::string in, shown;
  while (true) {
    switch (reader.Read(&in)) {
      case RequestReader::Step::kNeedMore:
        if (bytes.empty()) return shown + "|more";
        in.append(bytes.substr(0, piece_bytes));
        bytes.remove_prefix(std::min(piece_bytes, bytes.size()));
        break;
      case RequestReader::Step::kFailed:
        CHECK(reader.error_status() >= 400 && reader.error_status() < 500);
        CHECK(!reader.error().empty());
        return "failed";
      case RequestReader::Step::kHead: {
        const HttpRequest request = reader.TakeHead();
        shown += request.method + " " + request.path + "?" + request.query + request.Query("a") +
                 request.PathPart(1) + request.PathAfter("/v1/");
        for (const auto& [name, value] : request.headers) shown += "|" + name + "=" + value;
        for (const std::string& value : request.QueryAll("b")) shown += "|" + value;
        shown += reader.keep_alive() ? "|keep" : "|close";
        break;
      }
      case RequestReader::Step::kDone:
        return shown + "|body=" + reader.TakeBody() + "|left=" + in + std::string(bytes);
    }
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tandem::Reading;
  tandem::FuzzInput input(data, size);
  const size_t piece_bytes = 1 + input.Below(64);
  const std::string whole = Reading(input.Rest(), input.Rest().size() + 1);
  for (const size_t bytes : {size_t{1}, piece_bytes}) {
    const std::string pieces = Reading(input.Rest(), bytes);
    if (whole != "failed") {
      CHECK(pieces == whole) << "\n" << whole << "\n" << pieces;
    } else {
      // What is broken may be waited for to its end first; it is never taken.
      CHECK(pieces == "failed" || pieces.ends_with("|more")) << pieces;
    }
  }
  return 0;
}
