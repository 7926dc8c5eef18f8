"""Members that torchvision defines, and their small forms."""

from functools import partial
from typing import Callable, List, Sequence

from torch import Tensor, nn
from torchvision import models
from torchvision.models import convnext, maxvit, regnet, shufflenetv2, swin_transformer, vision_transformer
from torchvision.models.optical_flow import raft
from torchvision.models.video import mvit

from member import MEMBERS, Member, floats, member, uniform
from narrow import narrow

CLASSES = 10


def classifier(module: nn.Module, size: int, opset: int = 16) -> Member:
    """A classifier of square images."""
    return Member(module, {"image": floats(1, 3, size, size)}, ["logits"], opset=opset)


# Classifiers whose small form divides the channels: by what, and the images' size, full and small.
NARROWED = {
    "alexnet": (4, 224, 224),
    "densenet121": (4, 224, 64),
    "densenet169": (4, 224, 64),
    "efficientnet_b0": (4, 224, 96),
    "efficientnet_v2_s": (8, 224, 128),
    "mnasnet0_5": (2, 224, 64),
    "mnasnet1_0": (4, 224, 64),
    "mobilenet_v2": (4, 224, 64),
    "mobilenet_v3_large": (4, 224, 96),
    "mobilenet_v3_small": (4, 224, 128),
    "resnet18": (4, 224, 64),
    "resnet34": (4, 224, 64),
    "resnet50": (4, 224, 64),
    "resnext50_32x4d": (4, 224, 64),
    "squeezenet1_0": (4, 224, 64),
    "squeezenet1_1": (4, 224, 64),
    "vgg11": (16, 224, 224),
    "vgg11_bn": (16, 224, 224),
    "wide_resnet50_2": (8, 224, 64),
}


def narrowed(name: str, factor: int, full_size: int, small_size: int, **options) -> None:
    """Enter a classifier that torchvision makes by its name."""
    make = getattr(models, name)

    def made(small: bool) -> Member:
        if not small:
            return classifier(make(**options), full_size)
        return classifier(narrow(make(num_classes=CLASSES * factor, **options), factor), small_size)

    MEMBERS[name] = made


for _name, _sizes in NARROWED.items():
    narrowed(_name, *_sizes)
narrowed("googlenet", 4, 224, 64, aux_logits=False, init_weights=False)
narrowed("inception_v3", 8, 299, 107, aux_logits=False, init_weights=False)


@member
def convnext_tiny(small: bool) -> Member:
    if not small:
        return classifier(models.convnext_tiny(), 224, opset=17)
    widths, depths = [16, 32, 64, 128, None], [1, 1, 2, 1]
    blocks = [convnext.CNBlockConfig(widths[i], widths[i + 1], depths[i]) for i in range(4)]
    return classifier(models.ConvNeXt(blocks, num_classes=CLASSES), 64, opset=17)


@member
def maxvit_t(small: bool) -> Member:
    if not small:
        return classifier(models.maxvit_t(), 224)
    module = maxvit.MaxVit((128, 128), 16, 4, [16, 32, 48, 64], [1, 1, 2, 1], 16, 0.0, num_classes=CLASSES)
    return classifier(module, 128)


def small_regnet(group_width: int, se_ratio: float = None) -> nn.Module:
    blocks = regnet.BlockParams([1, 1, 2, 2], [16, 32, 64, 96], [group_width] * 4, [1.0] * 4, [2] * 4, se_ratio)
    return regnet.RegNet(blocks, num_classes=CLASSES, stem_width=16)


@member
def regnet_x_400mf(small: bool) -> Member:
    return classifier(small_regnet(16), 64) if small else classifier(models.regnet_x_400mf(), 224)


@member
def regnet_y_400mf(small: bool) -> Member:
    return classifier(small_regnet(8, se_ratio=0.25), 64) if small else classifier(models.regnet_y_400mf(), 224)


@member
def shufflenet_v2_x0_5(small: bool) -> Member:
    if not small:
        return classifier(models.shufflenet_v2_x0_5(), 224)
    return classifier(shufflenetv2.ShuffleNetV2([4, 8, 4], [24, 16, 32, 64, 128], CLASSES), 64)


@member
def shufflenet_v2_x1_0(small: bool) -> Member:
    if not small:
        return classifier(models.shufflenet_v2_x1_0(), 224)
    return classifier(shufflenetv2.ShuffleNetV2([4, 8, 4], [24, 28, 56, 112, 256], CLASSES), 64)


def swin(small: bool, window: int, **options) -> nn.Module:
    width, depths, heads = (24, [2, 2, 2, 2], [1, 2, 4, 8]) if small else (96, [2, 2, 6, 2], [3, 6, 12, 24])
    classes = CLASSES if small else 1000
    return models.SwinTransformer([4, 4], width, depths, heads, [window, window], num_classes=classes, **options)


@member
def swin_t(small: bool) -> Member:
    return classifier(swin(small, 7), 112 if small else 224, opset=17)


@member
def swin_v2_t(small: bool) -> Member:
    # The exporter has no form for zero_(), by which torchvision clears the bias of the keys.
    attention = partial(swin_transformer.ShiftedWindowAttentionV2, qkv_bias=False)
    block = partial(swin_transformer.SwinTransformerBlockV2, attn_layer=attention)
    module = swin(small, 8, block=block, downsample_layer=swin_transformer.PatchMergingV2)
    return classifier(module, 128 if small else 256)


@member
def vit_b_16(small: bool) -> Member:
    if not small:
        return classifier(models.vit_b_16(), 224)
    return classifier(vision_transformer.VisionTransformer(64, 16, 2, 4, 64, 256, num_classes=CLASSES), 64)


class Segmenter(nn.Module):
    """The one output of torchvision's segmentation models that is not for training."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        return self.model(image)["out"]


def segmenter(make: Callable[..., nn.Module], small: bool, full_size: int) -> Member:
    if small:
        module, size = narrow(make(weights_backbone=None, num_classes=CLASSES * 8), 8), 64
    else:
        module, size = make(weights_backbone=None), full_size
    return Member(Segmenter(module), {"image": floats(1, 3, size, size)}, ["scores"])


@member
def deeplabv3_mobilenet_v3_large(small: bool) -> Member:
    return segmenter(models.segmentation.deeplabv3_mobilenet_v3_large, small, 320)


@member
def fcn_resnet50(small: bool) -> Member:
    return segmenter(models.segmentation.fcn_resnet50, small, 256)


@member
def lraspp_mobilenet_v3_large(small: bool) -> Member:
    return segmenter(models.segmentation.lraspp_mobilenet_v3_large, small, 320)


class Detector(nn.Module):
    """A detector's results for the first image, and before them what its dense head found."""

    def __init__(self, model: nn.Module, head: nn.Module):
        super().__init__()
        self.model = model
        self.found: List[Tensor] = []
        head.register_forward_hook(self.keep)

    def keep(self, _, __, output) -> None:
        values = output.values() if isinstance(output, dict) else output
        self.found = [t for value in values for t in (value if isinstance(value, list) else [value])]

    def forward(self, images: Tensor) -> List[Tensor]:
        results = self.model(list(images))[0]
        return self.found + list(results.values())


def detector(model: nn.Module, head: nn.Module, dense: int, size: int, results: Sequence[str]) -> Member:
    """A detector whose dense head has as many outputs; results are sorted by scores that may be nearly equal."""
    found = [f"dense_{i}" for i in range(dense)]
    return Member(Detector(model, head), {"image": uniform(0, 1, 1, 3, size, size)}, found + list(results), compared=found)


@member
def fasterrcnn_mobilenet_v3_large_320_fpn(small: bool) -> Member:
    size, options = (96, {"num_classes": CLASSES}) if small else (320, {})
    model = models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, min_size=size, max_size=size, **options
    )
    if small:
        narrow(model, 4, keep=("rpn.head.cls_logits", "rpn.head.bbox_pred", "roi_heads.box_predictor.*"))
    return detector(model, model.rpn.head, 6, size, ["boxes", "labels", "scores"])


def rcnn(make: Callable[..., nn.Module], small: bool, results: Sequence[str]) -> Member:
    size, options = 320, {"rpn_post_nms_top_n_test": 100, "box_detections_per_img": 10}
    if small:
        size, options = 64, {"num_classes": 2, "rpn_pre_nms_top_n_test": 20, "box_detections_per_img": 5}
    model = make(weights=None, weights_backbone=None, min_size=size, max_size=size, **options)
    if small:
        keep = ("rpn.head.cls_logits", "*.bbox_pred", "*.mask_fcn_logits", "*.cls_score", "*.kps_score_lowres")
        narrow(model, 8, keep=keep)
    return detector(model, model.rpn.head, 10, size, results)


@member
def maskrcnn_resnet50_fpn(small: bool) -> Member:
    return rcnn(models.detection.maskrcnn_resnet50_fpn, small, ["boxes", "labels", "scores", "masks"])


@member
def keypointrcnn_resnet50_fpn(small: bool) -> Member:
    results = ["boxes", "labels", "scores", "keypoints", "keypoints_scores"]
    return rcnn(models.detection.keypointrcnn_resnet50_fpn, small, results)


@member
def retinanet_resnet50_fpn(small: bool) -> Member:
    size, options = (64, {"num_classes": CLASSES}) if small else (320, {})
    model = models.detection.retinanet_resnet50_fpn(
        weights=None, weights_backbone=None, min_size=size, max_size=size, **options
    )
    if small:
        narrow(model, 8, keep=("head.*.cls_logits", "head.*.bbox_reg"))
    # Its own bias leaves no score above the threshold before training.
    nn.init.zeros_(model.head.classification_head.cls_logits.bias)
    return detector(model, model.head, 2, size, ["boxes", "scores", "labels"])


@member
def ssdlite320_mobilenet_v3_large(small: bool) -> Member:
    options = {"num_classes": CLASSES} if small else {}
    model = models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, **options)
    if small:
        narrow(model, 4, keep=("head.*.module_list.*.1",))
    return detector(model, model.head, 2, 320, ["boxes", "scores", "labels"])


def clips(module: nn.Module, frames: int, size: int, opset: int = 16) -> Member:
    """A classifier of video clips."""
    return Member(module, {"clip": floats(1, 3, frames, size, size)}, ["logits"], opset=opset)


def video(make: Callable[..., nn.Module], small: bool) -> Member:
    if not small:
        return clips(make(), 8, 112)
    return clips(narrow(make(num_classes=CLASSES * 8), 8), 8, 32)


@member
def r3d_18(small: bool) -> Member:
    return video(models.video.r3d_18, small)


@member
def mc3_18(small: bool) -> Member:
    return video(models.video.mc3_18, small)


@member
def r2plus1d_18(small: bool) -> Member:
    return video(models.video.r2plus1d_18, small)


@member
def s3d(small: bool) -> Member:
    if not small:
        return clips(models.video.s3d(), 16, 224)
    module = narrow(models.video.s3d(num_classes=CLASSES * 4), 4)
    module.avgpool = nn.AvgPool3d((2, 2, 2), stride=1)
    return clips(module, 16, 64)


# Blocks of MViT: how many, heads, channels before and after, the strides by which queries and keys and values are pooled.
MVIT_V1 = (
    (1, 1, 96, 192, None, 8), (1, 2, 192, 192, 2, 4), (1, 2, 192, 384, None, 4), (1, 4, 384, 384, 2, 2),
    (9, 4, 384, 384, None, 2), (1, 4, 384, 768, None, 2), (1, 8, 768, 768, 2, 1), (1, 8, 768, 768, None, 1),
)
MVIT_V2 = (
    (1, 1, 96, 96, 1, 8), (1, 2, 96, 192, 2, 4), (1, 2, 192, 192, 1, 4), (1, 4, 192, 384, 2, 2),
    (10, 4, 384, 384, 1, 2), (1, 8, 384, 768, 2, 1), (1, 8, 768, 768, 1, 1),
)


def mvit_clips(small: bool, rows: Sequence[tuple], frames: int, size: int, opset: int, **options) -> Member:
    """A transformer of clips smaller than torchvision's own function allows; the small form's are smaller still."""
    factor, classes = (6, CLASSES) if small else (1, 400)
    if small:
        frames, size = 4, 64
    blocks = []
    for count, heads, inputs, outputs, stride_q, stride_kv in rows:
        kernel_q, strides_q = ([], []) if stride_q is None else ([3, 3, 3], [1, stride_q, stride_q])
        block = mvit.MSBlockConfig(
            heads, inputs // factor, outputs // factor, kernel_q, [3, 3, 3], strides_q, [1, stride_kv, stride_kv]
        )
        blocks += [block] * (1 if small else count)
    norm = partial(nn.LayerNorm, eps=1e-6)
    module = mvit.MViT((size, size), frames, blocks, num_classes=classes, norm_layer=norm, **options)
    return clips(module, frames, size, opset)


@member
def mvit_v1_b(small: bool) -> Member:
    options = {"residual_pool": False, "residual_with_cls_embed": True, "rel_pos_embed": False, "proj_after_attn": False}
    return mvit_clips(small, MVIT_V1, 8, 112, 16, **options)


@member
def mvit_v2_s(small: bool) -> Member:
    options = {"residual_pool": True, "residual_with_cls_embed": False, "rel_pos_embed": True, "proj_after_attn": True}
    # Larger clips take the exporter more than 24 GB, for the indices by which positions are added in place.
    return mvit_clips(small, MVIT_V2, 8, 64, 17, **options)


class Flow(nn.Module):
    """The last of the flows that RAFT refines."""

    def __init__(self, model: nn.Module, updates: int):
        super().__init__()
        self.model = model
        self.updates = updates

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return self.model(first, second, num_flow_updates=self.updates)[-1]


def small_raft() -> nn.Module:
    return raft._raft(
        feature_encoder_layers=(8, 8, 16, 24, 32), feature_encoder_block=raft.BottleneckBlock,
        context_encoder_layers=(8, 8, 16, 24, 40), context_encoder_block=raft.BottleneckBlock,
        feature_encoder_norm_layer=nn.InstanceNorm2d, context_encoder_norm_layer=None,
        corr_block_num_levels=4, corr_block_radius=2, motion_encoder_corr_layers=(24,), motion_encoder_flow_layers=(16, 8),
        motion_encoder_out_channels=20, recurrent_block_hidden_state_size=24, recurrent_block_kernel_size=(3,),
        recurrent_block_padding=(1,), flow_head_hidden_size=32, use_mask_predictor=False,
    )


@member
def raft_small(small: bool) -> Member:
    module, size, updates = (small_raft(), 128, 2) if small else (models.optical_flow.raft_small(), 256, 4)
    images = {name: uniform(-1, 1, 1, 3, size, size) for name in ("first", "second")}
    return Member(Flow(module, updates), images, ["flow"])
