// Icons on a 24 px grid with one stroke width. Decorative: the button that uses one needs a label.

import type { ComponentChildren, JSX } from 'preact'

type IconProps = { size?: number; class?: string }

function Icon({
  size = 20,
  children,
  ...rest
}: IconProps & { children: ComponentChildren }): JSX.Element {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      stroke-width="1.75"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
      focusable="false"
      {...rest}
    >
      {children}
    </svg>
  )
}

const drawn =
  (...paths: string[]) =>
  (props: IconProps): JSX.Element => (
    <Icon {...props}>
      {paths.map((path) => (
        <path key={path} d={path} />
      ))}
    </Icon>
  )

export const SessionsIcon = drawn('M4 6.5h16M4 12h16M4 17.5h10')
export const InboxIcon = drawn(
  'M4 13l2.6-7.2A2 2 0 0 1 8.5 4.5h7a2 2 0 0 1 1.9 1.3L20 13v4.5a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2V13z',
  'M4 13h4.5l1.5 2.5h4l1.5-2.5H20',
)
export const AgentsIcon = drawn(
  'M7 8.5h10a2 2 0 0 1 2 2V17a2 2 0 0 1-2 2H7a2 2 0 0 1-2-2v-6.5a2 2 0 0 1 2-2z',
  'M12 8.5V5M9.5 13v1.5M14.5 13v1.5M2.5 12.5v3M21.5 12.5v3',
)
export const SettingsIcon = drawn(
  'M4 7h9M17 7h3M4 17h3M11 17h9',
  'M15 5a2 2 0 1 1 0 4 2 2 0 0 1 0-4zM9 15a2 2 0 1 1 0 4 2 2 0 0 1 0-4z',
)
export const DevicesIcon = drawn(
  'M4 5h11a1.5 1.5 0 0 1 1.5 1.5V9M4 5a1.5 1.5 0 0 0-1.5 1.500v8A1.5 1.5 0 0 0 4 16h8M8 20h4',
  'M15.5 11.500h4a1.5 1.5 0 0 1 1.5 1.500v5.500a1.5 1.5 0 0 1-1.5 1.500h-4a1.5 1.5 0 0 1-1.5-1.500V13a1.5 1.5 0 0 1 1.5-1.500z',
)
export const MachineIcon = drawn(
  'M5 5h14a1.5 1.5 0 0 1 1.5 1.500v3A1.5 1.5 0 0 1 19 11H5a1.5 1.5 0 0 1-1.5-1.500v-3A1.5 1.5 0 0 1 5 5z',
  'M5 13h14a1.5 1.5 0 0 1 1.5 1.500v3A1.5 1.5 0 0 1 19 19H5a1.5 1.5 0 0 1-1.5-1.500v-3A1.5 1.5 0 0 1 5 13zM7 8h.01M7 16h.01',
)
export const PlusIcon = drawn('M12 5v14M5 12h14')
export const BackIcon = drawn('M15 5l-7 7 7 7')
export const ChevronIcon = drawn('M9 6l6 6-6 6')
export const DownIcon = drawn('M6 9l6 6 6-6')
export const ArrowDownIcon = drawn('M12 5v14M6 13l6 6 6-6')
export const SendIcon = drawn('M12 19V5M6 11l6-6 6 6')
export const StopIcon = (props: IconProps): JSX.Element => (
  <Icon {...props}>
    <rect x="7" y="7" width="10" height="10" rx="1.5" fill="currentColor" />
  </Icon>
)
export const CloseIcon = drawn('M6 6l12 12M18 6L6 18')
export const CheckIcon = drawn('M5 12.5l4.5 4.500L19 7.5')
export const CrossIcon = CloseIcon
export const SearchIcon = drawn('M11 4.500a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM16 16l4 4')
export const MoreIcon = (props: IconProps): JSX.Element => (
  <Icon {...props}>
    <circle cx="5.5" cy="12" r="1.2" fill="currentColor" />
    <circle cx="12" cy="12" r="1.2" fill="currentColor" />
    <circle cx="18.5" cy="12" r="1.2" fill="currentColor" />
  </Icon>
)
export const AttachIcon = drawn(
  'M19.5 11.500l-7.6 7.600a4.6 4.6 0 0 1-6.5-6.500l8-8a3 3 0 0 1 4.3 4.300l-8 8a1.5 1.5 0 0 1-2.1-2.100l7.2-7.2',
)
export const FolderIcon = drawn(
  'M3.5 7.500A1.5 1.5 0 0 1 5 6h4l2 2.500h8a1.5 1.5 0 0 1 1.5 1.500v7.500A1.5 1.5 0 0 1 19 19H5a1.5 1.5 0 0 1-1.5-1.500v-10z',
)
export const TerminalIcon = drawn(
  'M4.5 5h15A1.5 1.5 0 0 1 21 6.500v11a1.5 1.5 0 0 1-1.5 1.500h-15A1.5 1.5 0 0 1 3 17.500v-11A1.5 1.5 0 0 1 4.5 5z',
  'M7 9.500l3 2.5-3 2.500M12.5 15H17',
)
export const EditIcon = drawn('M4.5 19.500l1-4L16 5a2.1 2.1 0 0 1 3 3L8.5 18.500l-4 1zM14 7l3 3')
export const FileIcon = drawn(
  'M7 3.500h6.500L18.5 8.500V19a1.5 1.5 0 0 1-1.5 1.500H7A1.5 1.5 0 0 1 5.5 19V5A1.5 1.5 0 0 1 7 3.500z',
  'M13 4v5h5',
)
export const TrashIcon = drawn(
  'M5 7h14M10 7V5h4v2M7 7l.8 11.500A1.5 1.5 0 0 0 9.3 20h5.400a1.5 1.5 0 0 0 1.5-1.500L17 7',
)
export const GlobeIcon = drawn(
  'M12 3.500a8.5 8.5 0 1 1 0 17 8.5 8.5 0 0 1 0-17zM3.5 12h17M12 3.500c2.5 2.4 3.5 5.2 3.5 8.500s-1 6.1-3.5 8.500c-2.5-2.4-3.5-5.2-3.5-8.500s1-6.1 3.5-8.500z',
)
export const ThoughtIcon = drawn(
  'M9.5 18h5M10.5 20.500h3M12 3.500a6 6 0 0 0-3.6 10.800c.7.5 1.1 1.3 1.1 2.200h5c0-.9.4-1.7 1.1-2.200A6 6 0 0 0 12 3.500z',
)
export const ToolIcon = drawn(
  'M14.5 6.500a4 4 0 0 1 5.3-2.200l-2.6 2.6.4 2 2 .4 1-1a4 4 0 0 1-5.4 4.700l-6.4 6.400a1.9 1.9 0 0 1-2.7-2.700l6.4-6.400a4 4 0 0 1 2-3.800z',
)
export const MoveIcon = drawn('M4 12h15M13 6l6 6-6 6')
export const BellIcon = drawn(
  'M6.5 16.500V11a5.5 5.5 0 0 1 11 0v5.500l1.5 1.500H5l1.5-1.500zM10.5 20.500h3',
)
export const QuestionIcon = drawn(
  'M12 3.500a8.5 8.5 0 1 1 0 17 8.5 8.5 0 0 1 0-17z',
  'M9.7 9.500a2.4 2.4 0 1 1 3.6 2.100c-.8.5-1.3 1-1.3 1.900M12 16.500v.1',
)
export const ShieldIcon = drawn(
  'M12 3.500l7 2.500v5.500c0 4.3-2.9 7.4-7 9-4.1-1.6-7-4.7-7-9V6l7-2.500z',
)
export const WarningIcon = drawn('M12 4.500l8.5 15h-17L12 4.500zM12 10.500v4M12 17v.1')
export const ClockIcon = drawn('M12 3.500a8.5 8.5 0 1 1 0 17 8.5 8.5 0 0 1 0-17zM12 7.500V12l3 2')
export const CopyIcon = drawn(
  'M9.5 8.500h9A1.5 1.5 0 0 1 20 10v9a1.5 1.5 0 0 1-1.5 1.500h-9A1.5 1.5 0 0 1 8 19v-9a1.5 1.5 0 0 1 1.5-1.500z',
  'M5.5 15.500A1.5 1.5 0 0 1 4 14V5a1.5 1.5 0 0 1 1.5-1.500h9A1.5 1.5 0 0 1 16 5',
)
export const OfflineIcon = drawn(
  'M4 4l16 16M8.5 16a5 5 0 0 1 7 0M5.5 12.500a9.3 9.3 0 0 1 4.8-2.600M18.5 12.500a9.4 9.4 0 0 0-3-2M12 19.500v.1',
)

/** The logo: a ship's wheel. */
export function Wheel({ size = 24, ...rest }: IconProps): JSX.Element {
  const spokes = [0, 45, 90, 135, 180, 225, 270, 315].map((degrees) => (degrees * Math.PI) / 180)
  const at = (angle: number, radius: number): string =>
    `${(12 + radius * Math.cos(angle)).toFixed(2)} ${(12 + radius * Math.sin(angle)).toFixed(2)}`
  return (
    <Icon size={size} {...rest}>
      <circle cx="12" cy="12" r="6.2" />
      <circle cx="12" cy="12" r="1.9" />
      {spokes.map((angle) => (
        <path key={angle} d={`M${at(angle, 1.9)}L${at(angle, 10.2)}`} />
      ))}
    </Icon>
  )
}
export const ExpandIcon = drawn('M14 4.500h5.500V10M19.500 4.500l-6 6M10 19.500H4.500V14M4.500 19.500l6-6')
export const PinIcon = drawn('M9 4.500h6l-.6 6 2.600 3H7l2.600-3L9 4.500zM12 13.500v6')
export const KeyboardIcon = drawn(
  'M4.500 6.500h15A1.500 1.500 0 0 1 21 8v8a1.500 1.500 0 0 1-1.500 1.500h-15A1.500 1.500 0 0 1 3 16V8a1.500 1.500 0 0 1 1.500-1.500z',
  'M7 10.500h.1M10.300 10.500h.1M13.600 10.500h.1M17 10.500h.1M8.500 14h7',
)
