import { render } from 'preact'
import { data } from './data/index.ts'
import { Shell, watchMoves } from './screens/shell'
import './styles/tokens.css'
import './styles/base.css'
import './styles/parts.css'
import './styles/shell.css'
import './styles/transcript.css'
import { followTheme } from './ui/theme'

followTheme()
data.start()
watchMoves()
const root = document.getElementById('page')
if (root !== null) render(<Shell />, root)
