#pragma once

// Which images' rows the worker keeps, and which of them a step computes. A chunk of a prompt can
// run when the rows of all images in it are kept or computed with it; otherwise it ends before the
// first image whose rows are not. Rows are shared by all requests with the image, and stay after
// them until others need the room: those that nobody holds are dropped, the ones released first
// at first. The rules are those of vLLM's EncoderCacheManager.
// Where images must be whole (attention inside an image goes both ways), no chunk ends inside one.
//
// Thread: engine loop. Pure. Counts are rows unless their name says tokens. Steps run in the order
// in which they are scheduled, so what a later step drops or keeps is right for the earlier ones.
// Always: a request that holds nothing else finds room for one image; an image whose rows are kept
// is not computed.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/packed_bytes.h"
#include "common/status.h"
#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/scheduler_output.h"

namespace tandem {

class EncoderCache {
 public:
  // num_rows: that are kept, and the most that a step computes. needs_whole: see above.
  EncoderCache(int32_t num_rows, bool needs_whole)
      : capacity_(num_rows), needs_whole_(needs_whole) {}
  EncoderCache(const EncoderCache&) = delete;

  // INVALID_ARGUMENT: an image that must be whole has more tokens than a step can take. images:
  // null: none.
  Status Check(const RequestImages* images, int32_t most_tokens) const;
  // Before a request with these images is scheduled: the cache has room for the largest image that
  // it has met.
  void MakeRoomFor(const RequestImages* images);

  // ---- while a step is made ----
  void BeginStep() { budget_ = capacity_; }
  // How many of the request's next num_tokens tokens, from position `begin` on, can run. Up to
  // `most` where they would end inside an image that must be whole.
  int32_t NumTokensFor(const Request& request, int32_t begin, int32_t num_tokens,
                       int32_t most) const;
  // They run: the request holds the rows that they read, and the step computes those that are not
  // kept. REQUIRES: NumTokensFor allows them, and nothing was taken since.
  void Take(const Request& request, int32_t begin, int32_t num_tokens);
  // What this step computes, and what was dropped since the last one.
  void TakeChanges(SchedulerOutput* step);
  bool has_dropped() const { return !dropped_.empty(); }

  // The request no longer holds images that it has computed all tokens of.
  void ReleaseComputed(const Request& request);
  // It holds none. What only it was to have computed in the step being made is not computed.
  void Release(const Request& request);
  // Nothing is kept any more.
  void Reset();

  int32_t capacity() const { return capacity_; }
  int32_t num_kept() const { return num_kept_; }
  int32_t num_held() const { return num_held_; }

  // For a checkpoint; see Scheduler.
  void Save(ByteWriter* out) const;
  Status Load(ByteReader* in);

 private:
  struct Entry {
    int32_t num_rows = 0;
    std::vector<int64_t> holders;  // Request::order
    int64_t released = 0;          // its key in unheld_; 0: it is held
    bool is_new = false;           // computed by the step being made
  };
  using Entries = absl::flat_hash_map<std::string, Entry>;

  void Hold(Entry* entry, int64_t holder);
  void Compute(const std::shared_ptr<const ImageInput>& image, int64_t holder);
  void ReleaseOne(const ImageInput& image, int64_t holder);
  void DropOldest();
  std::vector<std::string> Keys() const;
  void Forget(Entries::iterator entry);

  int32_t capacity_;
  const bool needs_whole_;
  Entries entries_;                        // by ImageInput::key
  std::map<int64_t, std::string> unheld_;  // keys, the first released first
  int32_t num_kept_ = 0, num_held_ = 0;    // the first counts the second's too
  int32_t budget_ = 0;                     // that this step may still compute
  int64_t num_releases_ = 0;
  std::vector<std::shared_ptr<const ImageInput>> computed_;  // by the step being made
  std::vector<std::string> dropped_;                         // since the last step
};

}  // namespace tandem
