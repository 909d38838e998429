// Data sets whose samples are files that are decoded when they are wanted: images in a folder for each class, and images
// with maps of labels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "models/files/data_set.h"
#include "models/namespaces.h"

namespace halfmark::models {

// The layout of ImageNet: train/CLASS/*.jpg, .jpeg or .png, and val/CLASS/... (or test/). The classes are the folders of
// train in the order of their names. Images are resized (picture.h) until the subject's size just fits in, and its centre
// is taken. With 3 channels they are normalised by the mean and deviation of ImageNet that torchvision uses; with 1 channel
// by their means. The hash is of names, sizes and classes: the files may be hundreds of gigabytes. Null: no such folders.
std::shared_ptr<const DataSet> open_image_folder(const std::filesystem::path& folder);

// The layout of Cityscapes: leftImg8bit/{train,val}/CITY/*_leftImg8bit.png with gtFine/.../*_gtFine_labelIds.png or, where
// they exist, *_gtFine_labelTrainIds.png. Labels are 0 ... 18 and kUnlabelled. As above, but normalised to x / 255, as ERFNet
// is trained. Null: no such folders.
std::shared_ptr<const DataSet> open_cityscapes(const std::filesystem::path& folder);

inline constexpr int64_t kCityscapesClasses = 19;
// The trainId of a labelId; kUnlabelled: it is not trained on; -1: there is no such labelId.
int64_t train_id(int64_t label_id);

}  // namespace halfmark::models
