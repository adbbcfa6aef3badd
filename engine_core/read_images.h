#pragma once

// The images of a request from the wire: checked, and taken out of the message.
// Thread: engine loop. Failure: INVALID_ARGUMENT for the client; UNIMPLEMENTED for what this engine
// does not take.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine_core/executor/executor.h"
#include "engine_core/scheduler/request_images.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// NOT_FOUND: some have no data, because their frontend takes them to be here (LackingData).
// Null: the request has none. They stand in its prompt, in order and apart, on tokens that are
// images', and have as many rows as such tokens.
StatusOr<std::shared_ptr<const RequestImages>> ReadImages(const ExecutorLimits& limits,
                                                          wire::EngineCoreRequest* request);

// The hashes of a request's images without data.
std::vector<std::string> LackingData(const wire::EngineCoreRequest& request);

// A request's images as they are recorded: shapes in place of pixels.
struct RecordedImages {
  wire::RawValue mm_features;
  std::vector<std::string> aux_frames;
};
// nullopt: it has none, or they cannot be read.
std::optional<RecordedImages> WithoutPixels(const wire::EngineCoreRequest& request);

}  // namespace tandem
