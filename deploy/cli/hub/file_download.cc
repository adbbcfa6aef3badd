#include "deploy/cli/hub/file_download.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "deploy/cli/hub/partial_blob.h"
#include "deploy/cli/hub/pull_progress.h"

namespace tandem {
namespace {

constexpr int kMaxWholeTries = 5;
constexpr auto kDrawPause = std::chrono::milliseconds(20);

struct Part {
  PartialBlob* blob = nullptr;
  int index = 0;
};

class Download {
 public:
  Download(const HubClient& client, const std::vector<std::unique_ptr<PartialBlob>>& blobs,
           PullProgress* progress)
      : client_(client), progress_(progress) {
    for (const auto& blob : blobs) {
      for (int i = 0; i < blob->num_parts(); ++i) {
        if (!blob->IsDone(i)) parts_.push_back({blob.get(), i});
      }
    }
  }

  Status Run(int num_connections) {
    const size_t count = std::min(parts_.size(), static_cast<size_t>(num_connections));
    std::vector<Status> outcomes(count);
    std::atomic<size_t> num_ended = 0;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; ++i) {
      threads.emplace_back([this, &outcomes, &num_ended, i] {
        outcomes[i] = TakeParts();
        if (!outcomes[i].ok()) has_failed_ = true;
        ++num_ended;
      });
    }
    while (num_ended < count) {
      progress_->Draw();
      std::this_thread::sleep_for(kDrawPause);
    }
    for (std::thread& thread : threads) thread.join();
    progress_->Clear();
    for (const Status& status : outcomes) {
      // Others end early when one has failed.
      if (!status.ok() && status.code() != StatusCode::kAborted) return status;
    }
    return OkStatus();
  }

 private:
  Status TakeParts() {
    for (size_t i = next_++; i < parts_.size(); i = next_++) RETURN_IF_ERROR(Take(parts_[i]));
    return OkStatus();
  }

  Status Take(const Part& part) {
    PartialBlob& blob = *part.blob;
    const int64_t begin = blob.Begin(part.index), end = blob.End(part.index);
    bool is_whole = false;
    if (!blob.is_whole_only) {
      int64_t at = begin;
      const auto write = [&](std::string_view bytes) { return Write(&blob, &at, end, bytes); };
      RETURN_IF_ERROR(client_.GetRange(blob.file().target, blob.file().path, blob.file().size,
                                       begin, end, &is_whole, write));
    }
    if (!is_whole && !blob.is_whole_only) return Finish(&blob, part.index);
    // One connection brings all of it; the others leave this file alone.
    return blob.is_whole_only.exchange(true) ? OkStatus() : TakeWhole(&blob);
  }

  Status TakeWhole(PartialBlob* blob) {
    const int64_t size = blob->file().size;
    for (int i = 0; i < kMaxWholeTries; ++i) {
      bool is_cut = false;
      int64_t at = 0;
      const auto write = [&](std::string_view bytes) { return Write(blob, &at, size, bytes); };
      RETURN_IF_ERROR(
          client_.GetRange(blob->file().target, blob->file().path, size, 0, size, &is_cut, write));
      if (at < size) continue;
      for (int part = 0; part < blob->num_parts(); ++part) {
        RETURN_IF_ERROR(Finish(blob, part));
      }
      return OkStatus();
    }
    return UnavailableError(blob->file().path +
                            ": the connection is cut again and again, and the hub sends no parts");
  }

  // What lies after `end` comes from a hub that sends the whole file; it is not waited for.
  Status Write(PartialBlob* blob, int64_t* at, int64_t end, std::string_view bytes) {
    if (has_failed_) return AbortedError("another file failed");
    if (*at == end) return CancelledError("the part is there");
    bytes = bytes.substr(0, static_cast<size_t>(end - *at));
    RETURN_IF_ERROR(blob->Write(*at, bytes));
    *at += static_cast<int64_t>(bytes.size());
    progress_->Add(static_cast<int64_t>(bytes.size()));
    return OkStatus();
  }

  Status Finish(PartialBlob* blob, int part) {
    ASSIGN_OR_RETURN(const bool is_last, blob->FinishPart(part));
    if (!is_last) return OkStatus();
    RETURN_IF_ERROR(blob->Publish());
    progress_->Clear();
    std::fprintf(stderr, "%s  %s\n", blob->file().path.c_str(),
                 BytesText(blob->file().size).c_str());
    return OkStatus();
  }

  const HubClient& client_;
  PullProgress* const progress_;
  std::vector<Part> parts_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> has_failed_ = false;
};

Status CheckRoom(const std::string& folder, int64_t missing) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || std::cmp_greater_equal(space.available, missing)) return OkStatus();
  return ResourceExhaustedError(
      BytesText(missing) + " are missing, and " + folder + " has room for " +
      BytesText(static_cast<int64_t>(space.available)) + "; HF_HUB_CACHE names another folder");
}

}  // namespace

Status DownloadFiles(const HubClient& client, const std::vector<HubFile>& files,
                     const DownloadOptions& options) {
  std::vector<std::unique_ptr<PartialBlob>> blobs;
  std::set<std::string> hashes;  // two files of the same bytes are one blob
  int64_t missing = 0, total = 0;
  for (const HubFile& file : files) {
    if (!hashes.insert(file.hash).second) continue;
    ASSIGN_OR_RETURN(auto blob, PartialBlob::Open(options.cache, options.repository_folder, file,
                                                  options.part_bytes));
    if (blob == nullptr) continue;
    missing += blob->MissingBytes();
    total += file.size;
    // Nothing to ask for: an empty file, or one whose last part came just before the end.
    if (blob->MissingBytes() == 0) {
      RETURN_IF_ERROR(blob->Publish());
      continue;
    }
    blobs.push_back(std::move(blob));
  }
  if (blobs.empty()) return OkStatus();
  RETURN_IF_ERROR(CheckRoom(options.repository_folder, missing));
  PullProgress progress(total, total - missing, isatty(STDERR_FILENO) == 1);
  return Download(client, blobs, &progress).Run(options.num_connections);
}

}  // namespace tandem
