#pragma once

// The files of `tandem run-batch`, OpenAI's batch format as vLLM has it: a JSON object per line.
// Pure; any thread. Lines end in LF alone. Failure: INVALID_ARGUMENT that names the
// line.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

struct BatchRequest {
  std::string custom_id;
  std::string url;      // "/v1/chat/completions"
  std::string body;     // JSON
  std::string refusal;  // why it is not sent; empty: it is
};

// All requests of an input file. One line that is no request fails the whole file, before anything
// runs. A request that no server would take gets a refusal.
StatusOr<std::vector<BatchRequest>> ParseBatchInput(std::string_view text);

// Refuses requests that the server would not read to the end; 0: there is no limit.
void RefuseLargeBodies(int64_t max_bytes, std::vector<BatchRequest>* requests);

// What became of a request.
struct BatchReply {
  int status_code = 0;
  std::string body;
};

// The request's line of the output, with its line end. Its two other ids are random.
struct BatchLine {
  std::string text;
  bool is_error = false;
};
BatchLine BatchOutputLine(const BatchRequest& request, const BatchReply& reply);

// Which custom_ids an output file already has, and where its last whole line ends: what follows was
// cut off when an earlier run ended. A whole line without a custom_id fails: it is another file.
struct BatchOutputState {
  std::set<std::string> done;
  int64_t num_whole_bytes = 0;
};
StatusOr<BatchOutputState> ReadBatchOutput(std::string_view text);

}  // namespace tandem
