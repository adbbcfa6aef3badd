#pragma once

// The API over the small recorded model (tests/golden/api/model), without sockets: a body in, the
// engine requests out; engine outputs in, the response's text out. Thread: one.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/api/generate.h"

namespace tandem {

class ApiModel {
 public:
  static constexpr int64_t kMaxModelLen = 8192;

  explicit ApiModel(InputConfig config = {}, ApiOptions options = {});

  // A request after the stages that need no engine.
  struct Prepared : PreparedRequest {
    std::unique_ptr<GenerationCall> call;

    // Writes the response to *out. REQUIRES: this stays where it is.
    std::unique_ptr<ResponseWriter> MakeWriter(std::string* out) const;
  };
  // path: of an endpoint that generates. Null for another.
  std::unique_ptr<GenerationCall> MakeCall(std::string_view path) const;
  StatusOr<Prepared> Prepare(std::string_view path, std::string_view body) const;
  StatusOr<Prepared> Prepare(std::string_view path, std::string_view body,
                             const RequestHeaders& headers) const;
  RequestHeaders Headers() const;

  // Feeds outputs to the choices they name (by position in the prepared request) and returns what
  // the client would get: one body, or all events.
  struct Output {
    size_t choice = 0;
    wire::EngineCoreOutput output;
  };
  std::string Respond(const Prepared& prepared, const std::vector<Output>& outputs) const;

  const InputProcessor& input_processor() const { return processor_; }
  const Tokenizer& tokenizer() const { return processor_.tokenizer(); }
  const ApiOptions& options() const { return context_.options; }

 private:
  InputProcessor processor_;
  ApiContext context_;  // no engine, no threads
};

// The engine request as JSON, by the wire's names; "sampling" leaves out nil values.
std::string DescribeRequest(const wire::EngineCoreRequest& request);

// The JSON of each event of a stream but [DONE]. REQUIRES: a complete stream.
std::vector<std::string> EventBodies(std::string_view stream);

}  // namespace tandem
